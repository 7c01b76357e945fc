"""The paper's tables and figures from committed results, beside the published numbers."""
