//! The command line against real servers: one module for each subcommand.
