"""Operations on an idle session, and a look at the whole of it."""
