//! The JBD2 log on disk: layout, scan, revoke table and replay.
