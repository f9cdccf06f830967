"""The process that runs tasks, one after the other."""
