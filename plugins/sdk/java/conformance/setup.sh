#!/bin/sh
# setup.sh OUT: builds the conformance handler in the empty directory OUT.
set -eu
out=$(cd "$1" && pwd)
cd "$(dirname "$0")/.."
for tool in java mvn; do
	command -v "$tool" >/dev/null || { echo "setup.sh: $tool is missing: install a JDK 17 or newer and Maven" >&2; exit 1; }
done
# A copy, so that nothing is built in the source tree.
for part in handler conformance; do
	mkdir -p "$out/src/$part"
	cp -r "$part/pom.xml" "$part/src" "$out/src/$part/"
done
cat >"$out/src/pom.xml" <<'END'
<project xmlns="http://maven.apache.org/POM/4.0.0">
  <modelVersion>4.0.0</modelVersion>
  <groupId>io.github.kconsume</groupId>
  <artifactId>all</artifactId>
  <version>1</version>
  <packaging>pom</packaging>
  <modules>
    <module>handler</module>
    <module>conformance</module>
  </modules>
</project>
END
mvn -q -B -Dmaven.test.skip=true -f "$out/src/pom.xml" package >&2
cat >"$out/kconsume-handler-conformance" <<END
#!/bin/sh
exec java -XX:+UseSerialGC -XX:TieredStopAtLevel=1 -cp '$out/src/conformance/target/conformance.jar:$out/src/conformance/target/lib/*' conformance.Main "\$@"
END
chmod 0755 "$out/kconsume-handler-conformance"
