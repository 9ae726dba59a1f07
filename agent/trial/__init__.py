"""Trial days: when to run again, and what many runs together say. Works on run folders only."""
