"""The paper's experiments, the studies of where they differ, and the page that shows them."""
