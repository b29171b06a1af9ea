//! Where everything lies: groups, backups, descriptor tables, derived from a superblock.
