"""What all experiments share: processes, pinning, sampling, and the rows that they report."""
