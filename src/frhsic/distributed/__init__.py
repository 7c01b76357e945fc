"""Many processes: collectives for training, runners for a sketch. Import the one that is needed."""
