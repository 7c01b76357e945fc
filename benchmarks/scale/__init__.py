"""Many rows, many processes, databases, and what fails there."""
