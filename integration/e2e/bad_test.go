package e2e

import (
	"bytes"
	"context"
	"errors"
	"maps"
	"os/exec"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/meshmpi/meshmpi/integration/deploy"
	"github.com/meshmpi/meshmpi/integration/lab"
)

// unprivileged runs a command as nobody, who can never become anybody.
const unprivileged = "setpriv --reuid=65534 --regid=65534 --clear-groups --inh-caps=-all --bounding-set=-all "

// try runs a command line on a host with our commands in PATH and returns its
// exit code and what it printed.
func try(ctx context.Context, t *testing.T, n *deploy.Network, host, line string) (code int, stdout, stderr string) {
	t.Helper()
	ctx, cancel := context.WithTimeout(ctx, time.Minute)
	defer cancel()
	var out, errs bytes.Buffer
	cmd := n.Lab.Host(host).Command(ctx, "sh", "-c", "PATH="+bin+":$PATH; "+line)
	cmd.Stdout, cmd.Stderr = &out, &errs
	err := cmd.Run()
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatalf("%s: %v", line, err)
	}
	if exit != nil {
		code = exit.ExitCode()
	}
	return code, out.String(), strings.TrimSpace(errs.String())
}

// bad is a command that must fail with one line.
type bad struct {
	name, host, line string
	code             int
	says             string // in the line, parts in any order with … between
}

// check runs the command. It prints the line to the log, for a reader to judge.
func (b bad) check(ctx context.Context, t *testing.T, n *deploy.Network) {
	t.Helper()
	code, stdout, says := try(ctx, t, n, b.host, b.line)
	t.Logf("%s: %s", b.name, says)
	fits := code == b.code && stdout == "" && strings.Count(says, "\n") == 0
	for part := range strings.SplitSeq(b.says, "…") {
		fits = fits && strings.Contains(says, part)
	}
	if !fits {
		t.Errorf("%s: $ %s\ncode %d, want %d; want one line with %q, got:\n%s%s", b.name, b.line, code, b.code, b.says, stdout, says)
	}
}

// cases runs commands one after the other and checks that the hosts they ran on
// are afterwards as they were.
func cases(ctx context.Context, t *testing.T, n *deploy.Network, list []bad) {
	t.Helper()
	hosts := map[string]bool{}
	for _, b := range list {
		hosts[b.host] = true
	}
	before := snapshots(ctx, t, n, slices.Collect(maps.Keys(hosts))...)
	for _, b := range list {
		b.check(ctx, t, n)
	}
	wantSnapshots(ctx, t, n, "bad input", before)
}

// must runs a command line that has to work.
func must(ctx context.Context, t *testing.T, n *deploy.Network, host, line string) string {
	t.Helper()
	code, stdout, says := try(ctx, t, n, host, line)
	if code != 0 {
		t.Fatalf("%s$ %s: %d %s", host, line, code, says)
	}
	return strings.TrimSpace(stdout)
}

// TestBadInput: what users and circumstances get wrong is answered with one
// line that names the thing and the remedy, and leaves nothing half-done.
func TestBadInput(t *testing.T) {
	t.Parallel()
	lab.Need(t, "iperf3", "ss")
	ctx, n := up(t, lab.TwoSites(lab.PortPreserving), deploy.Options{InitArgs: []string{"--allow-root-exec"}})
	// a2 leaves: from here on it is a machine without a daemon, with a spare state.
	if err := n.Stop(ctx, "a2"); err != nil {
		t.Fatal(err)
	}
	once := must(ctx, t, n, "hub", "meshctl token create --site alpha")
	must(ctx, t, n, "a2", "meshd join --state /run/spare --name spare "+once)
	good := must(ctx, t, n, "hub", "meshctl token create --site alpha --uses 8")
	expired := must(ctx, t, n, "hub", "meshctl token create --ttl 1ms")

	t.Run("init and join", func(t *testing.T) {
		cases(ctx, t, n, badJoins(once, good, expired))
		must(ctx, t, n, "a2", "test -z \"$(ls -A /run /var/lib | grep -e new -e draft)\"") // nothing of a state directory
		nodes := must(ctx, t, n, "hub", "meshctl status")
		if strings.Contains(nodes, "refused") {
			t.Errorf("a machine that failed to join is a node:\n%s", nodes)
		}
	})
	t.Run("run", func(t *testing.T) { cases(ctx, t, n, badRuns()) })
	t.Run("meshctl", func(t *testing.T) { cases(ctx, t, n, slices.Concat(badCtls(), badSites(), badShapes())) })
	t.Run("port in use", func(t *testing.T) {
		d, err := n.Lab.Host("a2").Start(n.Tool("meshd"), "run", "--state", "/run/spare", "--pace", "off")
		if err != nil {
			t.Fatal(err)
		}
		if err := d.Await(ctx, "msg=ready"); err != nil {
			t.Fatal(err)
		}
		cases(ctx, t, n, []bad{{"port in use", "a2", "cp -a /run/spare /run/twin; meshd run --state /run/twin --tun mesh9", 1, "51820 is in use…--listen"},
			{"a rate where nothing is paced", "a2", "meshctl --state /run/spare shape set beta 1G", 1, "spare…--pace off"}})
		must(ctx, t, n, "a2", "meshctl --state /run/spare ping b1")
	})
	t.Run("revoked", func(t *testing.T) {
		must(ctx, t, n, "hub", "meshctl node revoke b2")
		err := deploy.Until(ctx, 10*time.Second, "b2 knows that it is revoked", func() (bool, error) {
			s, err := n.Status(ctx, "b2")
			return strings.Contains(strings.Join(s.Warnings, "\n"), "has been revoked") && len(s.Warnings) < 4, err
		})
		if err != nil {
			t.Error(err)
		}
		cases(ctx, t, n, []bad{
			{"revoked node", "a1", "meshctl ping b2", 1, "b2"},
			{"revoked caller", "b2", "meshrsh a1 true", 125, "b2…revoked"},
		})
	})
	if _, err := n.Ping(ctx, "a1", "b1"); err != nil {
		t.Errorf("the running network has suffered: %v", err)
	}
}

// badJoins are tried on a2, which runs no daemon.
func badJoins(once, good, expired string) []bad {
	init := "meshd init --state /run/new --name a --site s --advertise h:1 "
	join := "meshd join --state /run/new --name refused "
	cut := good[:len(good)-5]
	typo := strings.Replace(good, good[20:21], map[bool]string{true: "b", false: "a"}[good[20] == 'a'], 1)
	return []bad{
		{"no command", "a2", "meshd", 2, "expected one of…--help"},
		{"bad flag", "a2", "meshd run --nonsense", 2, "--nonsense…--help"},
		{"no flags", "a2", "meshd init", 2, "--advertise…--name…--site"},
		{"bad name", "a2", init + "--name A_b", 2, `--name…"A_b"…a-z`},
		{"bad site", "a2", init + "--site ''", 2, "--site"},
		{"bad address", "a2", init + "--advertise h", 2, "--advertise…HOST:PORT"},
		{"an address of one link", "a2", init + "--advertise 169.254.1.1:1", 2, "--advertise 169.254.1.1:1"},
		{"an address of the network", "a2", init + "--cidr 10.99.0.0/16 --advertise 10.99.0.1:1", 1, "--advertise 10.99.0.1:1…10.99.0.0/16"},
		{"everybody's domain", "a2", init + "--domain com", 2, "--domain com…mesh.internal"},
		{"bad prefix", "a2", init + "--cidr 10.0.0.1/8", 2, "--cidr 10.0.0.1/8…host bits"},
		{"prefix of the LAN", "a2", init + "--cidr $(ip -4 route show dev eth0 proto kernel | cut -d' ' -f1)", 1, "overlaps…eth0…--cidr"},
		{"init on a node", "a2", "meshd init --name a --site s --advertise h:1 --cidr 100.80.0.0/16", 1, "/var/lib/meshd…a2 of network mesh…--state"},
		{"join on a node", "a2", "meshd join --name x " + good, 1, "/var/lib/meshd…a2 of network mesh…--state"},
		{"join into other files", "a2", "mkdir /run/full; touch /run/full/x; meshd join --state /run/full --name x " + good, 1, "/run/full…not empty"},
		{"bad name to join", "a2", join + "--name 'B b' " + good, 2, `--name…"B b"`},
		{"used-up token", "a2", join + once, 1, "used up…meshctl token create"},
		{"expired token", "a2", join + expired, 1, "expired…meshctl token create…clock"},
		{"cut token", "a2", join + cut, 1, "token"},
		{"mistyped token", "a2", join + typo, 1, "token"},
		{"no token", "a2", join, 2, "no token given…MESH_TOKEN"},
		{"a token that is not set", "a2", join + `"$NOT_SET"`, 2, "<token>…empty"},
		{"no token file", "a2", join + "@/no/such/file", 1, "/no/such/file"},
		{"taken name", "a2", join + "--name b1 " + good, 1, "b1…beta…--name"},
		{"route in the way", "a2", "ip route add 100.80.7.0/24 dev eth0; " + join + good + "; r=$?; ip route del 100.80.7.0/24; exit $r", 1, "100.80.7.0/24…eth0…overlaps"},
		{"full disk", "a2", "mkdir /run/small; mount -t tmpfs -o size=16k none /run/small; " +
			"meshd join --state /run/small/new --name refused " + good + "; r=$?; ls -A /run/small; umount /run/small; rmdir /run/small; exit $r", 1, "/run/small…no space left…free some space"},
		{"read-only disk", "a2", "mkdir /run/ro; mount -t tmpfs -o ro none /run/ro; " +
			"meshd join --state /run/ro/new --name refused " + good + "; r=$?; umount /run/ro; rmdir /run/ro; exit $r", 1, "/run/ro/new…read-only…--state"},
		{"no right to write", "a2", unprivileged + "meshd join --state /var/lib/new --name refused " + good, 1, "/var/lib/new…permission denied…root"},
	}
}

// badRuns are tried on a2, which runs no daemon, but for the second daemon.
func badRuns() []bad {
	// run makes a copy of the spare state, breaks it, and runs with it.
	run := func(breaking string) string {
		return "rm -rf /run/copy; cp -a /run/spare /run/copy; " + breaking + "; meshd run --state /run/copy --tun mesh9 --listen :51999"
	}
	return []bad{
		{"no state", "a2", "meshd run --state /run/nothing", 1, "/run/nothing…meshd init or meshd join"},
		{"corrupt state", "a2", run("echo '{' >/run/copy/node.json"), 1, "/run/copy/node.json…backup…join again"},
		{"lost keys", "a2", run("rm /run/copy/keys.pem"), 1, "/run/copy/keys.pem…backup…join again"},
		{"another node's keys", "a2", run("cp /var/lib/meshd/keys.pem /run/copy"), 1, "/run/copy/keys.pem…backup…join again"},
		{"corrupt journal", "a2", run("echo '{' >/run/copy/host.journal"), 1, "/run/copy/host.journal…delete the file"},
		{"corrupt policy", "a2", run("echo '{' >/run/copy/policy.json"), 1, "/run/copy/policy.json…correct the file"},
		{"bad port", "a2", "meshd run --listen here", 2, "--listen"},
		{"bad way of pacing", "a2", "meshd run --state /run/spare --pace slow", 2, "--pace…live…static…off…slow"},
		{"bad range", "a2", "meshd run --port-range 9-1", 2, "--port-range…9-1"},
		{"metrics at no address", "a2", "meshd run --state /run/spare --metrics here", 2, `--metrics "here"…127.0.0.1:7725`},
		{"metrics at a name", "a2", "meshd run --state /run/spare --metrics localhost:7725", 2, `--metrics "localhost:7725"…127.0.0.1:7725`},
		{"metrics at another's address", "a2", "meshd run --state /run/spare --tun mesh9 --metrics 192.0.2.1:7725", 1, "192.0.2.1…no address of this host…--metrics"},
		{"metrics at an address in use", "a2", "iperf3 -s -B 127.0.0.1 -p 7725 >/dev/null 2>&1 & until ss -Hltn | grep -q :7725; do :; done; " +
			"meshd run --state /run/spare --tun mesh9 --metrics 127.0.0.1:7725; r=$?; kill $!; exit $r", 1, "7725 of 127.0.0.1 is in use…--metrics"},
		{"bad interface name", "a2", "meshd run --tun 'x y'", 1, `"x y"…letters`},
		{"foreign interface", "a2", "ip link add mesh8 type bridge; meshd run --state /run/spare --tun mesh8; r=$?; ip link del mesh8; exit $r", 1, "mesh8"},
		{"route in the way", "a2", "ip route add 100.80.7.0/24 dev eth0; meshd run; r=$?; ip route del 100.80.7.0/24; exit $r", 1, "100.80.7.0/24…eth0…overlaps"},
		{"no /dev/net/tun", "a2", "unshare -m sh -c 'mount -t tmpfs none /dev/net && exec meshd run --state /run/spare --tun mesh9'", 1, "/dev/net/tun"},
		{"no right to read", "a2", unprivileged + "meshd run", 1, "/var/lib/meshd…permission denied…root"},
		{"no right to open the device", "a2", "rm -rf /run/copy; cp -a /run/spare /run/copy; chown -R 65534:65534 /run/copy; " + withTUN("600"), 1, "/dev/net/tun…root…permission denied"},
		{"no right to make an interface", "a2", withTUN("666"), 1, "CAP_NET_ADMIN…root"},
		{"no right to a low port", "a2", unprivileged + "meshd run --state /run/copy --listen :80", 1, "port 80…permission denied…root"},
		{"full disk", "a2", "mkdir /run/small; mount -t tmpfs -o size=512k none /run/small; cp -a /run/spare /run/small/s; cat /dev/zero >/run/small/pad 2>/dev/null; " +
			"meshd run --state /run/small/s; r=$?; umount /run/small; rmdir /run/small; exit $r", 1, "/run/small/s…no space left…free some space"},
		{"read-only disk", "a2", "mount --bind /run/spare /run/spare; mount -o remount,bind,ro /run/spare; meshd run --state /run/spare; r=$?; umount /run/spare; exit $r", 1, "/run/spare…read-only"},
		{"second daemon", "a1", "meshd run", 1, "/var/lib/meshd…in use…pid"},
		{"restore under a daemon", "a1", "meshd restore", 1, "/var/lib/meshd…in use…pid"},
	}
}

// withTUN has nobody's meshd see the TUN device with some mode, whatever this machine's.
func withTUN(mode string) string {
	return "unshare -m sh -c 'mount -t tmpfs none /dev/net && mknod -m " + mode + " /dev/net/tun c 10 200 && exec " + unprivileged + "meshd run --state /run/copy'"
}

// badCtls ask daemons for what they cannot do or the caller may not.
func badCtls() []bad {
	return []bad{
		{"nowhere to print the environment", "a1", "meshctl env > /dev/full", 1, "no space left"},
		{"nowhere to print a round trip", "a1", "meshctl ping -c 1 b1 > /dev/full", 1, "no space left"},
		{"no daemon", "a2", "meshctl status", 1, "/var/lib/meshd…meshd run"},
		{"dead daemon's socket", "a2", "meshctl --state /run/nothing events", 1, "/run/nothing…meshd run"},
		{"bad rate of a job", "a1", "meshrun -n 1 --matb fast -- true", 125, "--matb…fast…100Mb/s"},
		{"bad pattern of a job", "a1", "meshrun -n 1 --pattern ring -- true", 125, "--pattern…ring…alltoall"},
		{"hints and none", "a1", "meshrun -n 1 --no-hints --matb 1G -- true", 125, "--no-hints…--matb"},
		{"nodes that are not set", "a1", `meshrun -n 1 -H "$NOT_SET" -- true`, 125, "--host…empty"},
		{"a directory that is not set", "a1", `meshrun -n 1 --wdir "$NOT_SET" -- true`, 125, "--wdir…empty"},
		{"a node of elsewhere", "a1", "meshrun -n 1 -H b1.cluster.example.org -- true", 125, `"b1.cluster.example.org"…this network`},
		{"a variable without a name", "a1", "meshrun -n 1 -x =v -- true", 125, `-x "=v"`},
		{"a directory as program", "a1", "meshrun -n 1 -H a1 -- /etc", 126, "/etc…directory"},
		{"a profile over files", "a1", "mkdir /run/full; touch /run/full/x; meshrun -n 1 --profile /run/full -- true; r=$?; rm -r /run/full; exit $r", 125, "--profile…/run/full…not empty"},
		{"a profile in a file", "a1", "meshrun -n 1 --profile /etc/passwd -- true", 125, "--profile…/etc/passwd…no folder"},
		{"a profile beneath a file", "a1", "meshrun -n 1 --profile /etc/passwd/x -- true", 125, "--profile…/etc/passwd/x…no folder"},
		{"a profile where nothing can be made", "a1", "unshare -m sh -c 'mount -t tmpfs -o ro none /mnt && exec meshrun -n 1 --profile /mnt/x -- true'", 125, "--profile…/mnt/x…read-only…that is yours"},
		{"a profile of a job that cannot be", "a1", "meshrun -n 1 -H nobody --profile /run/none -- true; r=$?; test -e /run/none && r=99; exit $r", 125, "nobody"},
		{"no command", "a1", "meshctl", 2, "expected one of…--help"},
		{"not a hub", "a1", "meshctl token create", 1, "a1…not a hub…mesh"},
		{"not an administrator", "hub", unprivileged + "meshctl token create", 1, "root…hub…sudo"},
		{"no uses", "hub", "meshctl token create --uses 0", 2, "--uses"},
		{"no life", "hub", "meshctl token create --ttl 0s", 2, "--ttl"},
		{"a life too long", "hub", "meshctl token create --ttl 99999h", 1, "year"},
		{"bad site", "hub", "meshctl token create --site 'A b'", 1, "A b"},
		{"no token's ID", "hub", "meshctl token revoke ../x", 1, "../x…meshctl token list"},
		{"no node's name", "hub", "meshctl node revoke ..", 1, `".."…meshctl status`},
		{"no node named to remove", "hub", `meshctl node remove "$NOT_SET"`, 2, "<name>…empty"},
		{"unknown token", "hub", "meshctl token revoke 00", 1, "00…meshctl token list"},
		{"unknown node to revoke", "hub", "meshctl node revoke nobody", 1, "nobody…meshctl status"},
		{"revoking the hub itself", "hub", "meshctl node revoke hub", 1, "hub itself"},
		{"unknown node", "a1", "meshctl ping nobody", 1, `"nobody"…network mesh…a1, a2, b1`},
		{"unknown address", "a1", "meshctl path 100.80.99.99", 1, `"100.80.99.99"…network mesh`},
		{"ping itself", "a1", "meshctl ping a1", 1, "a1…itself"},
		{"ping nothing", "a1", "meshctl ping -c 0 b1", 2, "--count"},
		{"node that is down", "a1", "meshctl ping a2", 1, "a2 at site alpha does not answer…no hub sees it…meshd runs there"},
	}
}

// badSites declare what nobody can, or where and by whom it cannot be done.
func badSites() []bad {
	return []bad{
		{"site, no command", "a1", "meshctl site", 2, "expected one of…list…set…link…--help"},
		{"site list, no daemon", "a2", "meshctl site list", 1, "/var/lib/meshd…meshd run"},
		{"site set on no hub", "a1", "meshctl site set alpha --up 1G", 1, "a1…not a hub…run this on a hub of network mesh"},
		{"site link on no hub", "a1", "meshctl site link alpha beta --bandwidth 1G", 1, "a1…not a hub"},
		{"site set by nobody", "hub", unprivileged + "meshctl site set alpha --up 1G", 1, "root…hub…sudo"},
		{"site link by nobody", "hub", unprivileged + "meshctl site link alpha beta --clear", 1, "root…hub…sudo"},
		{"site set, no site", "hub", "meshctl site set", 2, "site…--help"},
		{"site set, no rate", "hub", "meshctl site set alpha", 2, "--up RATE…--clear"},
		{"site set, native or not", "hub", "meshctl site set alpha --native maybe", 2, `--native…"maybe" is neither on nor off`},
		{"site set, native on no hub", "a1", "meshctl site set alpha --native on", 1, "a1…not a hub"},
		{"site set, native and nothing", "hub", "meshctl site set alpha --native off --clear", 2, "--clear…without…--native"},
		{"site set, a word", "hub", "meshctl site set alpha --up fast", 2, `--up: "fast" is no rate…100Mb/s`},
		{"site set, below 0", "hub", "meshctl site set alpha --down=-5M", 2, `--down…"-5M" is no rate`},
		{"site set, 0", "hub", "meshctl site set alpha --down 0", 2, `--down…"0"…10kb/s to 100Tb/s`},
		{"site set, a forgotten letter", "hub", "meshctl site set alpha --up 100", 2, `--up…"100"…10kb/s`},
		{"site set, a size", "hub", "meshctl site set alpha --up 100MB", 2, `--up…"100MB"…b/s for bits…B/s for bytes`},
		{"site set, measured, almost", "hub", "meshctl site set alpha --up measure", 2, `--up…"measure" is no rate…measured`},
		{"site set, measured on no hub", "a1", "meshctl site set alpha --up measured", 1, "a1…not a hub"},
		{"site set, measured by nobody", "hub", unprivileged + "meshctl site set alpha --up measured", 1, "root…hub…sudo"},
		{"site set, measured and cleared", "hub", "meshctl site set alpha --down measured --clear", 2, "--clear…without --up"},
		{"site link, measured, itself", "hub", "meshctl site link alpha alpha --bandwidth measured", 2, `"alpha" to itself`},
		{"site link, measured and cleared", "hub", "meshctl site link alpha beta --bandwidth measured --clear", 2, "--clear…without --bandwidth"},
		{"shape set, measured", "a1", "meshctl shape set beta measured", 2, `"measured" is no rate`},
		{"site set, both ways", "hub", "meshctl site set alpha --up 1G --clear", 2, "--clear…without --up"},
		{"site set, bad name", "hub", "meshctl site set 'A b' --up 1G", 1, `"A b"…a-z`},
		{"site set, nothing to clear", "hub", "meshctl site set alpha --clear", 1, `"alpha"…meshctl site list`},
		{"site link, one site", "hub", "meshctl site link alpha --bandwidth 1G", 2, "<b>…--help"},
		{"site link, itself", "hub", "meshctl site link alpha alpha --bandwidth 1G", 2, `"alpha" to itself`},
		{"site link, no rate", "hub", "meshctl site link alpha beta", 2, "--bandwidth RATE…--clear"},
		{"site link, a word", "hub", "meshctl site link alpha beta --bandwidth 1e9", 2, `--bandwidth…"1e9"…unit`},
		{"site link, both ways", "hub", "meshctl site link alpha beta --bandwidth 1G --clear", 2, "--clear…without --bandwidth"},
		{"site link, bad name", "hub", "meshctl site link alpha b_ta --bandwidth 1G", 1, `"b_ta"…a-z`},
		{"site link, nothing to clear", "hub", "meshctl site link alpha beta --clear", 1, `"alpha" and "beta"…meshctl site list`},
	}
}

// badShapes set rates that cannot be, or where and by whom they cannot be set.
func badShapes() []bad {
	return []bad{
		{"shape, no daemon", "a2", "meshctl shape", 1, "/var/lib/meshd…meshd run"},
		{"shape set, no rate", "a1", "meshctl shape set beta", 2, "<rate>…--help"},
		{"shape set, a word", "a1", "meshctl shape set beta fast", 2, `"fast" is no rate…100Mb/s`},
		{"shape set, 0", "a1", "meshctl shape set beta 0", 2, `"0"…10kb/s to 100Tb/s`},
		{"shape set, a size", "a1", "meshctl shape set beta 100MB", 2, `"100MB"…B/s for bytes`},
		{"shape set, the own site", "a1", "meshctl shape set alpha 1G", 1, "within a site…another site"},
		{"shape set, no such site", "a1", "meshctl shape set gamma 1G", 1, `"gamma"…meshctl site list`},
		{"shape set by nobody", "a1", unprivileged + "meshctl shape set beta 1G", 1, "root…a1…sudo"},
		{"shape weight, none", "a1", "meshctl shape weight", 2, "<weight>…--help"},
		{"shape weight, a word", "a1", "meshctl shape weight heavy", 2, `"heavy" is no weight…1 to 255`},
		{"shape weight, 0", "a1", "meshctl shape weight 0", 2, `"0" is no weight…1 to 255`},
		{"shape weight, 256", "a1", "meshctl shape weight 256", 2, `"256" is no weight…1 to 255`},
		{"shape weight by nobody", "a1", unprivileged + "meshctl shape weight 2", 1, "root…a1…sudo"},
		{"shape clear, no site", "a1", "meshctl shape clear", 2, "<site>…--help"},
		{"shape clear, no such site", "a1", "meshctl shape clear gamma", 1, `"gamma"…meshctl site list`},
		{"shape clear by nobody", "a1", unprivileged + "meshctl shape clear beta", 1, "root…a1…sudo"},
	}
}

// TestNotAllowed: a network founded without --allow-root-exec lets root of one
// node be root of another neither by meshrsh nor by meshrun. And once the hub is
// gone, joining says so within seconds.
func TestNotAllowed(t *testing.T) {
	t.Parallel()
	ctx, n := up(t, lab.OneLAN(), deploy.Options{})
	cases(ctx, t, n, []bad{
		{"root", "a1", "meshrsh a2 true", 125, "a2 refused…root…--allow-root-exec"},
		{"root's job", "a1", "meshrun -n 2 -H a1:1,a2:1 -- " + compiled(t, "dies", "openmpi"), 125, "a2 refused…root…--allow-root-exec"},
		{"no shell", "a1", unprivileged + "meshrsh a2 true", 125, "a2 refused…nobody…login shell"},
	})
	token, err := n.Token(ctx, "alpha", 1)
	if err != nil {
		t.Fatal(err)
	}
	n.Kill("a1")
	bad{"unreachable hub", "a2", "meshd join --state /run/new --name x " + token, 1, "cannot reach…check"}.check(ctx, t, n)
}
