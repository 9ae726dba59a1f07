"""The command line: one file a command in ``commands``; the one place that knows everyone."""
