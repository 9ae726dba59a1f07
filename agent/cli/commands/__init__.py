"""One module a command, named like it (``contract_`` would be a keyword's name); each holds ``command``."""
