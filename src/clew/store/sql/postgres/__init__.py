"""The store on PostgreSQL. Needs the extra ``postgres``; nothing here is imported before it is used."""
