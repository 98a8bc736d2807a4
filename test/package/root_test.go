package package_test

import (
	"os/exec"
	"runtime"
	"strings"
	"testing"
)

// inRoot runs a script in a copy of the Debian root in which no systemd runs, as
// where an image is built. The root's path is $ROOT. What it changes is in memory.
func inRoot(t *testing.T, script string) string {
	t.Helper()
	const prepare = `set -e
area=$1
mount -t tmpfs tmpfs "$area"
mkdir "$area/up" "$area/work" "$area/debian"
mount -t overlay overlay -o "lowerdir=$2,upperdir=$area/up,workdir=$area/work" "$area/debian"
mount -t proc proc "$area/debian/proc"
export ROOT=$area/debian DEBIAN_FRONTEND=noninteractive PS4='# '
set -x
`
	cmd := exec.Command("unshare", "--mount", "--pid", "--fork", "--kill-child", "bash", "-c", prepare+script, "bash", t.TempDir(), made.root)
	out, err := cmd.CombinedOutput()
	_, shown, _ := strings.Cut(string(out), "# set -x\n")
	if shown == "" {
		shown = string(out)
	}
	t.Logf("%s", quiet(shown))
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	return string(out)
}

func TestDebWithoutSystemd(t *testing.T) {
	inRoot(t, `
cp "`+made.deb(firstVersion, runtime.GOARCH)+`" "$ROOT/srv/first.deb"
cp "`+made.deb(secondVersion, runtime.GOARCH)+`" "$ROOT/srv/second.deb"
chroot "$ROOT" dpkg -i /srv/first.deb
chroot "$ROOT" getent passwd kconsume
chroot "$ROOT" stat -c '%A %U %n' /var/lib/kconsume /etc/kconsume/credentials
chroot "$ROOT" kconsume version
chroot "$ROOT" dpkg -i /srv/second.deb
chroot "$ROOT" dpkg --verify kconsume
chroot "$ROOT" dpkg -r kconsume
chroot "$ROOT" dpkg --purge kconsume
rm "$ROOT"/srv/*.deb
test -z "$(find "$ROOT" -name '*kconsume*' -not -path "$ROOT/proc/*" | tee /dev/stderr)"
`)
}

// The rpm tools work in the Debian root: it has the shell and the systemd that
// the scripts call.
func TestRPM(t *testing.T) {
	first, other := made.rpm(firstVersion, rpmArch(runtime.GOARCH)), made.rpm(firstVersion, rpmArch(otherArch()))
	inRoot(t, `
rpm="rpm --root $ROOT"
$rpm --initdb
! $rpm -i --nodeps --test "`+other+`"
$rpm -i --nodeps "`+first+`"
$rpm -q kconsume
$rpm -V --nodeps kconsume
$rpm -qc kconsume
chroot "$ROOT" getent passwd kconsume
chroot "$ROOT" kconsume version
echo '# of ours' >>"$ROOT/etc/kconsume/example.yaml"
! $rpm -V --nodeps kconsume
$rpm -U --nodeps --replacepkgs "`+first+`"
tail -1 "$ROOT/etc/kconsume/example.yaml" | grep -x '# of ours'
$rpm -e --nodeps kconsume
find "$ROOT" -name '*kconsume*' -not -path "$ROOT/proc/*"
test ! -e "$ROOT/usr/bin/kconsume" -a ! -e "$ROOT/usr/share/kconsume" -a ! -e "$ROOT/run/kconsume"
`)
}
