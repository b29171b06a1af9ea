//! Records of the JBD2 journal, and of its fast-commit area.
