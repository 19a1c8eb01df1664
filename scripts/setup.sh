#!/bin/sh
# Makes what the tests need, on a machine that has a Python >= 3.11 and a network.
#
#   scripts/setup.sh python   .venv, with the versions that uv.lock pins
#   scripts/setup.sh pyspark 4.1   .venv-pyspark-4.1, the same with another PySpark
#   scripts/setup.sh lowest   .venv-lowest, with the lowest versions that pyproject.toml allows PyHudi to run on
#   scripts/setup.sh newest   .venv-newest, with the newest versions that pyproject.toml allows
#   scripts/setup.sh on 3.13  .venv-3.13, the pinned versions on another Python
#   scripts/setup.sh integration dlt   .venv-dlt, with integrations/dlt and the newest release of its tool
#   scripts/setup.sh java     a Java runtime for Spark, where there is none and this user may install one
#   scripts/setup.sh hudi     .venv-hudi (PySpark 3.5) and the bundle of Apache Hudi 1.0.2 in .hudi-jars; `hudi 1.1.1`, `hudi 1.2.0` for others
#   scripts/setup.sh servers  HDFS for tests, DynamoDB Local, Kafka and HBase from Maven Central (.servers, .hbase-jars), Azurite and s3rver from npm (.servers)
#   scripts/setup.sh versitygw   .servers/bin/versitygw, an S3 server that Go builds from source: minutes
#
# Each step does nothing when its result is there. Downloads go through the ordinary clients (pip, uv, apt-get, mvn or Spark's Ivy), so their
# mirrors and proxies apply. `java`, `hudi` and the servers end well even when they cannot do their work: they say in one
# sentence what is missing, and the tests that need it are skipped.
set -eu

cd "$(dirname "$0")/.."

. scripts/interpreters.sh

setup_python() {
  # A .venv that works is kept with its interpreter: uv would make it anew for another spelling of the same path.
  python=$(find_python .venv/bin/python ${PYTHON:+"$PYTHON"} python3.13 python3.12 python3.11 python3.14 python3 python)
  uv=$(find_uv "$python")
  UV_PYTHON_DOWNLOADS=never "$uv" sync --quiet --frozen --inexact --python "$python" --extra connect --extra cli --extra plot "$@"
}

# An environment with another release of PySpark, to run the Spark tests in: PyHudi from this checkout, the rest as pinned.
setup_pyspark() {
  setup_python
  [ "$(".venv-pyspark-$1/bin/python" -c 'import pyspark; print(pyspark.__version__)' 2>/dev/null | cut -d. -f1,2)" = "$1" ] && return 0
  "$uv" venv --quiet --clear --python "$python" ".venv-pyspark-$1"
  "$uv" export --quiet --frozen --no-emit-project --no-hashes --extra connect --extra cli | grep -v '^pyspark' >".venv-pyspark-$1/pins.txt"
  "$uv" pip install --quiet --python ".venv-pyspark-$1/bin/python" -r ".venv-pyspark-$1/pins.txt" "pyspark[connect]==$1.*" -e .
}

# An environment with the lowest versions of what pyproject.toml names: a bound that is too low shows as a test that fails. What those bring with
# them, and the tools of the tests, are of today.
setup_lowest() {
  setup_python
  "$uv" venv --quiet --clear --python "$python" .venv-lowest
  "$uv" pip compile --quiet --no-deps --resolution lowest-direct --python "$python" --extra cli --extra plot pyproject.toml -o .venv-lowest/pins.txt
  "$uv" pip install --quiet --python .venv-lowest/bin/python -r .venv-lowest/pins.txt --group dev -e .
}

# An environment with the newest versions of everything, which uv.lock does not pin.
setup_newest() {
  setup_python
  "$uv" venv --quiet --clear --python "$python" .venv-newest
  "$uv" pip install --quiet --upgrade --python .venv-newest/bin/python --group dev -e '.[cli,plot]'
}

# The pinned versions on another release of Python, which pyenv or uv may have.
setup_on() {
  setup_python
  interpreter=$(find_version "$1")
  UV_PYTHON_DOWNLOADS=never UV_PROJECT_ENVIRONMENT=".venv-$1" "$uv" sync --quiet --frozen --inexact --python "$interpreter" --extra cli --extra plot
}

# An environment for one of integrations/. dbt-core 1.12 builds a package from a download that PyPI does not have.
setup_integration() {
  setup_python
  [ -x ".venv-$1/bin/python" ] || "$uv" venv --quiet --python "$python" ".venv-$1"
  bound=
  [ "$1" = dbt ] && bound='dbt-core<1.12'
  # shellcheck disable=SC2086 # nothing, or one word
  "$uv" pip install --quiet --python ".venv-$1/bin/python" -e '.[sql,polars,pandas]' -e "integrations/$1" pytest $bound
}

# Prints the major version of the Java that Spark would start, or nothing.
java_version() {
  java=${JAVA_HOME:+"$JAVA_HOME/bin/java"}
  "${java:-java}" -version 2>&1 | sed -n 's/.* version "\(1\.\)\{0,1\}\([0-9][0-9]*\).*/\2/p' | head -n 1
}

setup_java() {
  version=$(java_version || true)
  if [ "${version:-0}" -ge 17 ]; then
    return 0
  fi
  for home in /usr/lib/jvm/*; do
    version=$(JAVA_HOME="$home" java_version || true)
    if [ "${version:-0}" -ge 17 ]; then
      return 0 # the tests look there too
    fi
  done
  if [ "$(id -u)" = 0 ] && command -v apt-get >/dev/null 2>&1; then
    export DEBIAN_FRONTEND=noninteractive
    apt-get update -q >/dev/null || true
    for package in openjdk-17-jre-headless openjdk-21-jre-headless default-jre-headless; do
      if apt-get install -y -q --no-install-recommends "$package" >/dev/null; then
        return 0
      fi
    done
  fi
  echo "setup: no Java >= 17 found, so the tests on Spark are skipped; install one (Debian: openjdk-17-jre-headless) and run this again." >&2
}

# Which release of Hudi to fetch, and how its bundle is known to be whole.
choose_hudi() {
  case "$1" in
    1.0.2) HUDI_SHA256=2c2ab65a11e91265e4b7346f954448c46df52d66fb72f52dad83767b621deae8 ;;
    1.1.1) HUDI_SHA256=5470908f0d26897fb6e0768790e6c75e3d05d2fa013f7d81c8f90c74056d1604 ;;
    1.2.0) HUDI_SHA256=cc79fba00822f3a6c3a860df99375c2e3d4a034d037dbf4213a4966a706a7676 ;;
    *) echo "setup: no release of Hudi known as $1; 1.0.2, 1.1.1 and 1.2.0 are" >&2; exit 2 ;;
  esac
  HUDI_ARTIFACT=org.apache.hudi:hudi-spark3.5-bundle_2.12:$1
  HUDI_JAR=.hudi-jars/hudi-spark3.5-bundle_2.12-$1.jar
}

jar_is_whole() {
  [ -f "$1" ] && .venv-hudi/bin/python - "$1" "$HUDI_SHA256" <<'PY'
import hashlib, sys
with open(sys.argv[1], "rb") as jar:
    sys.exit(hashlib.file_digest(jar, "sha256").hexdigest() != sys.argv[2])
PY
}

fetch_with_maven() {
  command -v mvn >/dev/null 2>&1 &&
    mvn -q -B org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy -Dartifact="$HUDI_ARTIFACT" -DoutputDirectory="$1" >&2
}

# Spark resolves `--packages` before it runs the program, here an empty one; the jar is then in the folder of its Ivy.
fetch_with_spark() {
  : >"$1/nothing.py"
  PYSPARK_PYTHON=.venv-hudi/bin/python .venv-hudi/bin/spark-submit --master 'local[1]' --driver-memory 512m \
    --packages "$HUDI_ARTIFACT" --conf "spark.jars.ivy=$PWD/$1/ivy" "$1/nothing.py" >"$1/spark.log" 2>&1 &&
    mv "$1/ivy/jars/org.apache.hudi_${HUDI_JAR##*/}" "$1/${HUDI_JAR##*/}"
}

setup_hudi() {
  if ! .venv-hudi/bin/python -c 'import pyspark' 2>/dev/null; then
    python=$(find_python ${HUDI_PYTHON:+"$HUDI_PYTHON"} python3.11 python3.12 .venv/bin/python python3) &&
      uv=$(find_uv "$python") &&
      UV_PYTHON_DOWNLOADS=never "$uv" venv --quiet --clear --python "$python" .venv-hudi &&
      "$uv" pip install --quiet --python .venv-hudi/bin/python -r scripts/hudi-requirements.txt ||
      return 1
  fi
  if jar_is_whole "$HUDI_JAR"; then
    return 0
  fi
  mkdir -p .hudi-jars
  work=.hudi-jars/fetching
  for fetch in ${FETCH:-fetch_with_maven fetch_with_spark}; do
    rm -rf "$work"
    mkdir -p "$work"
    if "$fetch" "$work" && jar_is_whole "$work/${HUDI_JAR##*/}"; then
      mv "$work/${HUDI_JAR##*/}" "$HUDI_JAR"
      rm -rf "$work"
      return 0
    fi
  done
  echo "setup: could not fetch $HUDI_ARTIFACT, so the interop tests are skipped; put the jar into .hudi-jars by hand (see $work/spark.log)." >&2
}

HDFS_ARTIFACTS="org.apache.hadoop:hadoop-client-minicluster:3.3.6 org.mockito:mockito-core:2.28.2
  ch.qos.reload4j:reload4j:1.2.25 javax.xml.bind:jaxb-api:2.3.1"
HBASE_ARTIFACTS="org.apache.hbase:hbase-thrift:2.6.1 org.apache.hbase:hbase-zookeeper:2.6.1"
DYNAMODB_ARTIFACTS=com.amazonaws:DynamoDBLocal:2.6.0
KAFKA_ARTIFACTS=org.apache.kafka:kafka_2.13:4.1.1
NODE_SERVERS="azurite@3.35.0 s3rver@3.7.1"
VERSITYGW=github.com/versity/versitygw/cmd/versitygw@v1.8.0

# fetch_jars FOLDER ARTIFACT...: these with what they need at run time, which only Maven can tell.
fetch_jars() {
  folder=$1
  shift
  [ -f "$folder/.done" ] && return 0
  command -v mvn >/dev/null 2>&1 || return 1
  rm -rf "$folder"
  mkdir -p "$folder"
  {
    echo '<project><modelVersion>4.0.0</modelVersion><groupId>none</groupId><artifactId>none</artifactId><version>1</version><dependencies>'
    for artifact in "$@"; do
      echo "$artifact" | sed 's|\(.*\):\(.*\):\(.*\)|<dependency><groupId>\1</groupId><artifactId>\2</artifactId><version>\3</version></dependency>|'
    done
    echo '</dependencies></project>'
  } >"$folder/pom.xml"
  mvn -q -B -f "$folder/pom.xml" org.apache.maven.plugins:maven-dependency-plugin:3.6.1:copy-dependencies -DincludeScope=runtime \
    -DoutputDirectory="$PWD/$folder" >&2 && touch "$folder/.done"
}

fetch_node_servers() {
  [ -x .servers/node_modules/.bin/azurite-blob ] && [ -x .servers/node_modules/.bin/s3rver ] && return 0
  command -v npm >/dev/null 2>&1 || return 1
  mkdir -p .servers
  # shellcheck disable=SC2086 # several words
  npm install --silent --no-audit --no-fund --no-save --prefix .servers $NODE_SERVERS >&2
}

setup_servers() {
  # Mockito, log4j and JAXB are not among what the mini cluster of HDFS names. HBase comes with its Thrift server, for index HBASE.
  # shellcheck disable=SC2086 # several words
  fetch_jars .servers/hdfs $HDFS_ARTIFACTS || echo "setup: HDFS could not be fetched with Maven, so the tests on it are skipped." >&2
  # shellcheck disable=SC2086
  fetch_jars .hbase-jars $HBASE_ARTIFACTS || echo "setup: HBase could not be fetched with Maven, so the tests of index HBASE are skipped." >&2
  fetch_jars .servers/dynamodb $DYNAMODB_ARTIFACTS || echo "setup: DynamoDB Local could not be fetched with Maven, so the tests on it are skipped." >&2
  fetch_jars .servers/kafka $KAFKA_ARTIFACTS || echo "setup: Kafka could not be fetched with Maven, so the tests on it are skipped." >&2
  fetch_node_servers || echo "setup: Azurite and s3rver could not be fetched with npm, so the tests on them are skipped." >&2
}

setup_versitygw() {
  [ -x .servers/bin/versitygw ] && return 0
  mkdir -p .servers/bin
  { command -v go >/dev/null 2>&1 && GOBIN="$PWD/.servers/bin" go install "$VERSITYGW"; } ||
    echo "setup: Go could not build the Versity gateway, so the tests on it are skipped." >&2
}

case "${1:-}" in
  servers) setup_servers ;;
  versitygw) setup_versitygw ;;
  python) shift; setup_python "$@" ;;
  integration) setup_integration "$2" ;;
  java) setup_java ;;
  pyspark) setup_pyspark "$2" ;;
  lowest) setup_lowest ;;
  newest) setup_newest ;;
  on) setup_on "$2" ;;
  hudi) choose_hudi "${2:-1.0.2}"; setup_hudi || echo "setup: .venv-hudi could not be made, so the interop tests are skipped." >&2 ;;
  *) sed -n '3,15p' "$0" >&2; exit 2 ;;
esac
