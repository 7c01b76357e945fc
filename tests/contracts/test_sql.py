"""Rows of PostgreSQL as record batches: what comes, in how much memory, and that no password is ever told.

The server is started here, as for the benchmark: by a user without rights, on a socket of its own.
"""

import contextlib
import json
import logging
import os
import pickle
import subprocess
import sys
import textwrap
import traceback

import pyarrow as pa
import pytest

from benchmarks.scale import postgres
from frhsic.data import to_matrix, to_sensitive
from frhsic.sources import drop_missing, open_source, open_sql

pytest.importorskip("adbc_driver_postgresql", reason="adbc-driver-postgresql is not installed")

pytestmark = pytest.mark.xdist_group("database")  # in one worker: the server is filled once
PASSWORD = "s/esame@47:11?#"
ESCAPED = "s%2Fesame%4047%3A11%3F%23"
ROWS = 1_000_000


@pytest.fixture(scope="module")
def server():
    """Start a server that asks for a password, on a socket in a folder of its own."""
    with contextlib.ExitStack() as stack:
        try:
            folder = stack.enter_context(postgres.server(PASSWORD))
        except FileNotFoundError as error:
            pytest.skip(str(error))
        yield folder


@pytest.fixture
def database(server, monkeypatch):
    """Name the variable with the URL; the password is in the URL."""
    monkeypatch.setenv("BANK_DATABASE", f"postgresql://auditor:{ESCAPED}@/postgres?host={server}")
    return "BANK_DATABASE"


@pytest.fixture(scope="module")
def filled(server):
    """Write a table of a million rows, with every kind of column."""
    from adbc_driver_postgresql import dbapi

    address = f"postgresql://auditor:{ESCAPED}@/postgres?host={server}"
    with dbapi.connect(address) as connection, connection.cursor() as cursor:
        cursor.execute("create type zone as enum ('north', 'south')")
        cursor.execute(
            "create table scores as select (x * 0.37) - floor(x * 0.37) as score, 18 + x % 73 as age, "
            "(x % 100) / 4.0 as income, x % 2 = 0 as member, "
            "case when x % 3 = 0 then 'chef' else 'nurse' end as job, "
            "(case when x % 2 = 0 then 'north' else 'south' end)::zone as zone, "
            "case when x = 700000 then null else x::float8 end as gap, "
            "date '2000-01-01' + (x % 9000) as born, x::text::money as pay "
            f"from generate_series(1, {ROWS}) as t(x)"
        )
        connection.commit()


def rows(source):
    return pa.Table.from_batches(list(source), source.schema)


@pytest.mark.usefixtures("filled")
def test_a_query_comes_as_batches_of_numbers_and_labels(database):
    query = "select age, income, member, job, zone, score::float4 as score from scores where age < 20"
    source = open_sql(database, query, batch_rows=10_000)
    assert source.columns == ("age", "income", "member", "job", "zone", "score")
    batches = list(source)
    assert max(batch.num_rows for batch in batches) == 10_000
    assert sum(batch.num_rows for batch in batches) == sum(x % 73 < 2 for x in range(1, ROWS + 1))
    assert rows(source).num_rows == sum(batch.num_rows for batch in batches)  # asked again
    # numeric arrives as text, which would be read as labels.
    assert source.schema.field("income").type == pa.float64()
    s = to_sensitive(batches[0].select(["age", "income", "member", "job", "zone"]))
    assert s.kinds == ("continuous", "continuous", "categorical", "categorical", "categorical")
    assert s.categories[4] == ("north", "south")
    assert to_matrix(batches[0].select(["score"])).shape == (10_000, 1)
    assert repr(source) == "Source(one stream, columns 'age', 'income', 'member', 'job', 'zone', 'score')"


@pytest.mark.usefixtures("filled")
def test_the_password_may_come_from_where_all_programs_have_it(server, monkeypatch):
    monkeypatch.setenv("PGPASSWORD", PASSWORD)
    source = open_sql(f"postgresql://auditor@/postgres?host={server}", "select count(*) as n from scores")
    assert rows(source).to_pydict() == {"n": [ROWS]}


@pytest.mark.usefixtures("filled")
def test_gaps_are_errors_unless_they_are_allowed(database):
    query = "select gap, age from scores where age = 30"
    says = r"'query' must have no missing values in column 'gap'\. Got 1 .* Add 'WHERE gap IS NOT NULL' to"
    with pytest.raises(ValueError, match=says):
        list(open_sql(database, "select gap from scores"))
    source = open_sql(database, query, allow_missing=True)
    assert sum(drop_missing(batch).num_rows for batch in source) == sum(
        x % 73 == 12 and x != 700_000 for x in range(1, ROWS + 1)
    )


@pytest.mark.usefixtures("filled")
def test_the_command_line_advises_its_own_option_against_gaps(database, capsys):
    from frhsic.cli import run

    query = "select gap, age from scores where age = 30 or gap is null"
    arguments = ["audit", database, "--query", query, "--score", "gap", "--sensitive", "age"]
    assert run(arguments) == 2
    said = " ".join(capsys.readouterr().err.split())
    assert "Add 'WHERE gap IS NOT NULL' to the query, or pass --drop-missing to leave such rows out." in said
    assert "allow_missing" not in said


def test_all_passes_over_a_source_see_one_state_of_the_database(database):
    from adbc_driver_postgresql import dbapi

    def commit(*statements):
        with dbapi.connect(os.environ[database]) as connection, connection.cursor() as cursor:
            for statement in statements:
                cursor.execute(statement)
            connection.commit()

    commit("create table moving as select x::float8 as x from generate_series(1, 9000) as t(x)")
    source = open_sql(database, "select x from moving", batch_rows=1000)
    commit("insert into moving select 1e6 from generate_series(1, 500)")
    before = next(iter(source))  # a pass that is broken off
    commit("delete from moving where x < 100", "update moving set x = -x where x = 5000")
    first, second = rows(source), rows(source)
    assert first.equals(second)
    assert before.num_rows == 1000
    assert source.sample(500).equals(source.sample(500))
    assert sorted(first["x"].to_pylist()) == list(range(1, 9001))
    assert rows(open_sql(database, "select x from moving")).num_rows == 9401
    commit("drop table moving")


def test_a_snapshot_that_the_server_ended_is_an_error_that_says_so(database):
    source = open_sql(database, "select 1 as x")
    end = (
        "select pg_terminate_backend(pid) as gone from pg_stat_activity "
        "where state = 'idle in transaction' and query like '%pg_export_snapshot%' and pid = %s"
    )
    mine = "select min(pid) as pid from pg_stat_activity where query like '%pg_export_snapshot()%'"
    (pid,) = rows(open_sql(database, mine))["pid"].to_pylist()
    open_sql(database, end.replace("%s", str(pid)))  # which asks for a row
    with pytest.raises(ConnectionError, match=r"must keep the snapshot .* Open the source again") as refused:
        list(source)
    assert_silent(refused.value)


def test_batch_rows_are_a_number_of_rows(database):
    with pytest.raises(ValueError, match="'batch_rows' must be a positive"):
        open_sql(database, "select 1 as x", batch_rows=0)


@pytest.mark.usefixtures("filled")
def test_dates_of_a_query_are_no_numbers(database):
    (batch,) = open_sql(database, "select born from scores limit 5")
    with pytest.raises(ValueError, match=r"in column 'born'.* Convert them to a number"):
        to_sensitive(batch)


@pytest.mark.usefixtures("filled")
def test_a_reader_of_another_driver_is_a_source(server):
    from adbc_driver_postgresql import dbapi

    address = f"postgresql://auditor:{ESCAPED}@/postgres?host={server}"
    with dbapi.connect(address) as connection, connection.cursor() as cursor:
        cursor.execute("select age from scores limit 7")
        assert rows(open_source(cursor.fetch_record_batch())).num_rows == 7


@pytest.mark.usefixtures("filled")
@pytest.mark.skipif(not os.path.exists("/proc/self/clear_refs"), reason="the system does not tell the peak")
def test_a_million_rows_are_read_in_flat_memory(database):
    code = """
        import pyarrow, pyarrow.compute
        from frhsic.sources import open_sql
        def peak():
            with open("/proc/self/status") as file:
                return next(int(line.split()[1]) for line in file if line.startswith("VmHWM")) // 1024
        source = open_sql("BANK_DATABASE", "select score, age, income, member from scores")
        with open("/proc/self/clear_refs", "w") as file:
            file.write("5")  # the peak begins here
        before, count, peaks = peak(), 0, []
        for batch in source:
            count += batch.num_rows
            peaks.append((count, peak()))
        half = next(high for seen, high in peaks if seen >= count // 2)
        print(count, peak() - before, peak() - half)
    """
    command = [sys.executable, "-W", "error", "-c", textwrap.dedent(code)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=600)
    assert done.stderr == ""
    count, megabytes, later = map(int, done.stdout.split())
    assert count == ROWS
    assert megabytes < 32  # all rows would be 25, and their text more; 8 to 15 measured
    assert later <= 8  # half of all rows would be 12


@pytest.mark.usefixtures("filled")
def test_a_connection_that_is_cut_while_it_is_read_is_an_error(database):
    batches = iter(open_sql(database, "select score, age from scores"))
    seen = next(batches).num_rows
    cut = (
        "select pg_terminate_backend(pid) as gone from pg_stat_activity "
        "where datname = 'postgres' and pid <> pg_backend_pid()"
    )
    assert True in rows(open_sql(database, cut))["gone"].to_pylist()
    words = r"'query' must be a SELECT that runs to its end\. Got (SQLSTATE 57P01|a connection that end)"
    with pytest.raises(ValueError, match=words) as refused:
        seen += sum(batch.num_rows for batch in batches)
    assert 0 < seen < ROWS
    assert_silent(refused.value)


def test_a_pass_that_is_broken_off_leaves_no_connection(database):
    count = (
        "select count(*) as n from pg_stat_activity where datname = 'postgres' and pid <> pg_backend_pid()"
    )
    for _ in range(10):  # more than the server allows at a time
        for batch in open_sql(database, "select x::float8 as x from generate_series(1, 100000) as t(x)"):
            assert batch.num_rows
            break
    (batch,) = open_sql(database, count)
    # The one that keeps its own snapshot; and two of the last one may still be on their way out.
    assert batch.column(0)[0].as_py() <= 3


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize(
    "end", ["-- all of them", ";", "; -- done; really", " /* ; */", "\n;\n-- one\n/* two\n */\n", "-- it's"]
)
def test_comments_and_a_semicolon_may_end_a_query(database, end):
    query = "select age, '--;' as \"a;--\", $x$;--'$x$ as b, E'\\'--;' as c from scores where age = 18"
    (batch,) = open_sql(database, f"{query} {end}")
    assert batch.slice(0, 1).to_pylist() == [{"age": 18, "a;--": "--;", "b": ";--'", "c": "'--;"}]


@pytest.fixture(scope="module")
def policies(server):
    """Make a table of which a user sees half of the rows, and ways to it."""
    from adbc_driver_postgresql import dbapi

    with dbapi.connect(f"postgresql://auditor:{ESCAPED}@/postgres?host={server}") as connection:
        with connection.cursor() as cursor:
            for statement in (
                f"create role clerk login password '{PASSWORD}'",
                "create table people as select 18 + x % 60 as age, x::float8 as score, "
                "case when x % 2 = 0 then 'clerk' else 'boss' end as owner "
                "from generate_series(1, 4000) as t(x)",
                "alter table people enable row level security",
                "create policy own on people for select using (owner = current_user)",
                "create view plain as select * from people",
                "create view by_caller with (security_invoker = true) as select * from people",
                "create function of_people() returns setof people stable language sql as "
                "'select * from people'",
                "create table open_to_all as select * from people",
                "grant select on people, plain, by_caller, open_to_all to clerk",
            ):
                cursor.execute(statement)
        connection.commit()
    return f"postgresql://clerk:{ESCAPED}@/postgres?host={server}"


@pytest.mark.parametrize(
    ("query", "chosen"),
    [
        ("select age, score from people", True),
        ("with p as (select * from people) select a.age from open_to_all a join p using (score) -- x", True),
        ("select age from by_caller;", True),
        ("select age from of_people()", True),
        ("select age, score from open_to_all", False),
        ("select age from plain", False),  # with the rights of its owner, who sees all
    ],
)
def test_a_source_knows_whether_row_level_security_chose_its_rows(policies, server, query, chosen):
    source = open_sql(policies, query)
    assert source.row_security is chosen
    assert rows(source).num_rows == (2_000 if chosen else 4_000)
    whole = open_sql(f"postgresql://auditor:{ESCAPED}@/postgres?host={server}", query)
    assert whole.row_security is False
    assert rows(whole).num_rows == 4_000


def test_an_audit_of_rows_that_a_policy_chose_says_so_first(policies, tmp_path, monkeypatch, capsys):
    from frhsic.cli import run

    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "300")
    monkeypatch.setenv("BANK_DATABASE", policies)
    outputs = ["--report", "a.html", "--json", "a.json", "--markdown", "a.md"]
    query = ["--query", "select age, score from people"]
    assert run(["audit", "BANK_DATABASE", *query, "--score", "score", "--sensitive", "age", *outputs]) == 0
    first = capsys.readouterr().out.split("\n\n")[:2]
    assert "2,000 rows" in first[0]
    words = "Row-level security of the database chose these rows"
    assert first[1].startswith(words)
    written = json.loads((tmp_path / "a.json").read_text())
    assert written["record"]["options"]["row_security"] is True
    assert (tmp_path / "a.html").read_text().count(words) == 1
    assert (tmp_path / "a.md").read_text().count(words) == 1


def test_a_time_out_of_the_server_is_told_by_its_name(server):
    url = f"postgresql://auditor:{ESCAPED}@/postgres?host={server}&options=-c%20statement_timeout%3D200"
    query = "select x, pg_sleep(0.02)::text as y from generate_series(1, 100) as t(x)"
    with pytest.raises(
        ValueError, match="Got SQLSTATE 57014: the query was cancelled, by a time-out"
    ) as refused:
        list(open_sql(url, query))
    assert_silent(refused.value)


def test_no_right_to_a_table_is_no_policy(policies):
    with pytest.raises(ValueError, match=r"permission denied for table scores"):
        open_sql(policies, "select age from scores")


# ---- what is refused ---------------------------------------------------------------------------------------

QUERIES = {
    "syntax": ("selec age from scores", 'from the server: syntax error at or near "selec"'),
    "table": ("select age from nowhere", 'from the server: relation "nowhere" does not exist'),
    "column": ("select scroe from scores", 'from the server: column "scroe" does not exist'),
    "two": ("select 1 as a; select 2 as b", "from the server: cannot insert multiple commands"),
    "empty": ("", "must return columns"),
    "no rows": ("create table more (a int)", "must return columns"),
    "same name": ("select age, age from scores", "distinct names. Got 'age' twice"),
    "money": ("select pay from scores", "Got type money in column 'pay'"),
    "writes": ("delete from scores returning age", "an error|one that writes"),
    "while it runs": (
        "select 1 / (500000 - x) as y from generate_series(1, 500000) as t(x)",
        r"SQLSTATE 22012: division by zero\. Write NULLIF",
    ),
    "data": (
        "select (job || ' Lovelace')::int as j from scores",
        "SQLSTATE 22P02: text that cannot be converted",
    ),
    "parameter": ("select $1::int as x", "a query with a parameter such as"),
    "no row": ("select age from scores where age < 0", r"must return rows\. Got none"),
}


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("case", QUERIES)
def test_a_query_that_cannot_run_is_refused_without_a_word_of_the_data(database, case):
    query, words = QUERIES[case]
    with pytest.raises(ValueError, match=words) as refused:
        list(open_sql(database, query))
    assert str(refused.value).startswith("'query' must ")
    assert "\n" not in str(refused.value)
    assert "Lovelace" not in str(refused.value)
    assert_silent(refused.value)
    (batch,) = open_sql(database, "select count(*) as n from scores")
    assert batch.column(0).to_pylist() == [ROWS]


def assert_silent(error, secrets=(PASSWORD, ESCAPED, "esame")):
    """Nothing that one can print of an error tells the password, the variables of our frames included."""
    while error is not None:
        texts = [str(error), repr(error), *map(str, error.args)]
        for frame, line in traceback.walk_tb(error.__traceback__):
            file = frame.f_code.co_filename
            texts.append(f"{file}:{line}")
            if not file.startswith(os.path.dirname(__file__)):  # a test knows its password
                texts += [f"{name}={value!r}" for name, value in frame.f_locals.items()]
        for secret in secrets:
            assert not any(secret in text for text in texts)
        error = error.__context__


ADDRESSES = {
    "wrong password": (
        "postgresql://auditor:wr%2Fong-esame@/postgres?host={server}",
        "the user or the password",
    ),
    "no password": ("postgresql://auditor@/postgres?host={server}", "no password"),
    "no user": ("postgresql://nobody:esame@/postgres?host={server}", "the user or the password"),
    "no database": ("postgresql://auditor:{escaped}@/esamedb?host={server}", "no database of that name"),
    "no answer": ("postgresql://auditor:esame@127.0.0.1:1/postgres", "no answer from '127.0.0.1:1'"),
    "no socket": ("postgresql://auditor:esame@/postgres?host=/nowhere", "no answer from this address"),
    "slash": ("postgresql://auditor:12esame/34@127.0.0.1/postgres", "a refusal from this address"),
    "at": ("postgresql://auditor:esame@12@127.0.0.1:1/postgres", "from this address"),
    "hash": ("postgresql://auditor:es#esame@127.0.0.1:1/postgres", "from this address"),
    "percent": ("postgresql://auditor:esame%zz@127.0.0.1:1/postgres", "a refusal from '127.0.0.1:1'"),
    "option": ("postgresql://auditor@127.0.0.1:1/postgres?pasword=esame", "a refusal from"),
    "bracket": ("postgresql://auditor:[esame@127.0.0.1:1/postgres", "from this address"),
    "port": ("postgresql://auditor:x@127.0.0.1:esame/postgres", "from this address"),
}


@pytest.mark.parametrize(
    ("case", "from_environment"),
    [(case, False) for case in ADDRESSES]
    + [(case, True) for case in ("wrong password", "no answer", "slash", "bracket")],
)
def test_a_connection_that_fails_tells_no_part_of_the_password(server, monkeypatch, case, from_environment):
    monkeypatch.delenv("PGPASSWORD", raising=False)
    text, words = ADDRESSES[case]
    address = text.format(server=server, escaped=ESCAPED)
    if from_environment:
        monkeypatch.setenv("BANK_DATABASE", address)
        address = "BANK_DATABASE"
    with pytest.raises(ConnectionError, match=words) as refused:
        open_sql(address, "select 1 as x")
    assert_silent(refused.value)


OTHER = {
    "connection string": "host=127.0.0.1 password=esame",
    "other kind": "mysql://auditor:esame@127.0.0.1/bank",
    "not set": "NO_SUCH_VARIABLE",
}


@pytest.mark.parametrize("case", OTHER)
def test_what_is_no_address_is_refused_without_being_repeated(case):
    with pytest.raises(ValueError, match="'database' must be") as refused:
        open_sql(OTHER[case], "select 1 as x")
    assert_silent(refused.value)


@pytest.mark.usefixtures("filled")
def test_a_source_tells_no_password_and_does_not_travel(database, capfd, caplog):
    caplog.set_level(logging.DEBUG)
    source = open_sql(database, "select age from scores limit 3")
    list(source)
    for text in (repr(source), str(source.pieces), repr(vars(source)), repr(source.schema)):
        assert "esame" not in text
    with pytest.raises(TypeError, match="must consist of files") as refused:
        pickle.dumps(source)
    assert_silent(refused.value)
    with contextlib.suppress(ValueError):
        list(open_sql(database, "select 1 / 0 as x"))
    assert "esame" not in "".join(capfd.readouterr()) + caplog.text


def test_a_wrong_password_of_the_environment_is_told_to_nobody(server, monkeypatch, capfd):
    monkeypatch.setenv("PGPASSWORD", "wrong-esame")
    with pytest.raises(ConnectionError, match="the user or the password") as refused:
        open_sql(f"postgresql://auditor@/postgres?host={server}", "select 1 as x")
    assert_silent(refused.value)
    assert "esame" not in "".join(capfd.readouterr())


@pytest.mark.usefixtures("filled")
@pytest.mark.parametrize("by", ["variable", "URL"])
def test_a_table_is_audited_from_the_command_line_and_no_password_is_written(
    by, database, tmp_path, monkeypatch, capsys
):
    from frhsic.cli import run

    monkeypatch.chdir(tmp_path)
    where = database if by == "variable" else os.environ[database]
    query = "select score::float8 as score, age from scores where age < 40"
    options = ["--score", "score", "--sensitive", "age", "--report", "a.html", "--json", "a.json"]
    assert run(["audit", where, "--query", query, *options]) == 0
    out, err = capsys.readouterr()
    assert "rows." in out
    for text in (out, err, (tmp_path / "a.html").read_text(), (tmp_path / "a.json").read_text()):
        for secret in (PASSWORD, ESCAPED, "sesame"):
            assert secret not in text
    assert run(["audit", where, "--query", "select nothing from nowhere", *options]) == 2
    out, err = capsys.readouterr()
    assert err.startswith("Error: --query must be a SELECT")
    assert "sesame" not in out + err
