-- The records. Keys are compared byte by byte whatever the database's locale is: key order is number order.
CREATE TABLE wayside_records (
    key text COLLATE "C" PRIMARY KEY,
    value bytea NOT NULL,
    stored_at bigint NOT NULL CHECK (stored_at BETWEEN 0 AND 253402300799999999)
) WITH (autovacuum_vacuum_scale_factor = 0.02);  -- index records come and go at the low end of their range

-- The highest stamp and the highest answer of the clock so far, in microseconds. A sequence, since its value is
-- changed at once and for everybody, outlives a rollback, and is in the log before the commit that relies on it.
CREATE SEQUENCE wayside_clock AS bigint MINVALUE 0 START WITH 0;

-- Read the clock, never below what it said before, on whichever server. The caller's transaction holds the clock's
-- lock, shared or not. A second lock makes reading and raising the value one step; the session holds it for
-- microseconds, and lets go of it whatever happens.
CREATE FUNCTION wayside_tick() RETURNS bigint LANGUAGE plpgsql AS $$
DECLARE
    stamp bigint;
BEGIN
    PERFORM pg_advisory_lock(375159804674);
    SELECT greatest((extract(epoch FROM clock_timestamp()) * 1000000)::bigint, last_value) INTO stamp
    FROM wayside_clock;
    PERFORM setval('wayside_clock', stamp);
    PERFORM pg_advisory_unlock(375159804674);
    RETURN stamp;
EXCEPTION WHEN query_canceled OR OTHERS THEN
    PERFORM pg_advisory_unlock(375159804674);
    RAISE;
END
$$;

-- Answer a moment that no record that becomes visible later is stamped before (clock.py has the argument).
CREATE FUNCTION wayside_now() RETURNS bigint LANGUAGE plpgsql AS $$
BEGIN
    PERFORM pg_advisory_xact_lock(375159804673);
    RETURN wayside_tick();
END
$$;

-- Create the records that do not exist, all at one stamp. Keys are distinct and in order, so that two callers never
-- wait for each other in a circle. One row without a key means that all of them are new, and bears their stamp;
-- otherwise a row for each key says what is stored, and of two rows with one key the later is right.
CREATE FUNCTION wayside_create(new_keys text[], new_values bytea[])
RETURNS TABLE (key text, value bytea, stored_at bigint) LANGUAGE plpgsql AS $$
#variable_conflict use_column
DECLARE
    wanted CONSTANT bigint := cardinality(new_keys);
    stamp bigint;
    affected bigint;
BEGIN
    PERFORM pg_advisory_xact_lock_shared(375159804673);
    LOOP
        stamp := wayside_tick();
        INSERT INTO wayside_records (key, value, stored_at)
        SELECT fresh.key, fresh.value, stamp FROM unnest(new_keys, new_values) AS fresh (key, value)
        ON CONFLICT DO NOTHING;
        GET DIAGNOSTICS affected = ROW_COUNT;
        IF affected = wanted THEN
            RETURN QUERY SELECT NULL::text, NULL::bytea, stamp;
            RETURN;
        END IF;
        -- A statement of its own: it sees what the insert waited for.
        RETURN QUERY SELECT r.key, r.value, r.stored_at FROM wayside_records AS r WHERE r.key = ANY (new_keys);
        GET DIAGNOSTICS affected = ROW_COUNT;
        -- Fewer: one was there, and was deleted before it could be read. Create it.
        EXIT WHEN affected = wanted;
    END LOOP;
END
$$;
