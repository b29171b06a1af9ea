//! Feature bits and their names.
