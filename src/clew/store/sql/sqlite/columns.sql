-- Columns of other programs that say what clew keeps in the metadata: triggers that keep both in step, whichever program writes.
-- {table} and {column} are theirs, {key} the key of the metadata, {type} its JSON type, {empty} a value that says nothing,
-- {none} what clew writes without a value, {also} keys that go with an old value.

-- fragment: given
nullif(NEW.{column}, {empty})

-- fragment: noted
iif(json_valid(NEW.metadata_json) AND json_type(NEW.metadata_json, '$.{key}') = '{type}',
    json_extract(NEW.metadata_json, '$.{key}'), NULL)

-- fragment: noted_before
iif(json_valid(OLD.metadata_json) AND json_type(OLD.metadata_json, '$.{key}') = '{type}',
    json_extract(OLD.metadata_json, '$.{key}'), NULL)

-- fragment: follow_column
UPDATE {table} SET metadata_json = iif({given} IS NULL, json_remove(metadata_json, '$.{key}'{also}),
    json_set(json_remove(metadata_json, '$.{key}'{also}), '$.{key}', {given}))
WHERE id = NEW.id

-- fragment: follow_metadata
UPDATE {table} SET {column} = ifnull({noted}, {none}) WHERE id = NEW.id

-- name: column_changed
CREATE TRIGGER clew_{column}_changed AFTER UPDATE OF {column} ON {table}
WHEN NEW.{column} IS NOT OLD.{column} AND json_valid(NEW.metadata_json) AND {given} IS NOT {noted}
BEGIN
    {follow_column}; END

-- name: metadata_changed
CREATE TRIGGER clew_{column}_follows AFTER UPDATE OF metadata_json ON {table}
WHEN NEW.{column} IS OLD.{column} AND {noted} IS NOT {noted_before} AND {given} IS NOT {noted}
BEGIN
    {follow_metadata}; END

-- name: column_inserted
CREATE TRIGGER clew_{column}_inserted AFTER INSERT ON {table}
WHEN {given} IS NOT NULL AND json_valid(NEW.metadata_json) AND {given} IS NOT {noted}
BEGIN
    {follow_column}; END

-- name: metadata_inserted
CREATE TRIGGER clew_{column}_filled AFTER INSERT ON {table}
WHEN {given} IS NULL AND {noted} IS NOT NULL
BEGIN
    {follow_metadata}; END

-- name: bring_metadata
-- The column of rows that were there before counts; where it says nothing, the metadata does.
UPDATE {table} AS NEW SET metadata_json =
    json_set(json_remove(metadata_json, '$.{key}'{also}), '$.{key}', {given})
WHERE {given} IS NOT NULL AND json_valid(metadata_json) AND {given} IS NOT {noted}

-- name: bring_column
UPDATE {table} AS NEW SET {column} = {noted} WHERE {given} IS NULL AND {noted} IS NOT NULL
