-- The version of clew's tables, in a row of clew's own: a program that shares the file may use user_version for itself.

CREATE TABLE clew_schema (version INTEGER PRIMARY KEY NOT NULL);
