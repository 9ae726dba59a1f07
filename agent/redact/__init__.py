"""Taking names, addresses, serials, paths and secrets out of a run, so that it still judges to the same verdict."""
