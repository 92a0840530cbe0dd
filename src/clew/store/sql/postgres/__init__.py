"""The store on PostgreSQL. Needs the extra ``postgres``; this package is imported only when it is used."""
