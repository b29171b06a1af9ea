//! Extended attributes and access control lists.
