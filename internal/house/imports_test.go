package house

import "testing"

// rooms says what each room may import of ours. The most specific entry counts.

var rooms = []struct {
	room string
	may  []string
}{
	{"mesh/peer", nil},
	{"internal/wire", nil},
	{"internal/house", nil},
	{"internal/boot", nil},
	{"internal/cli", nil},
	{"internal/eventually", nil},
	{"internal/deaf", nil},
	{"internal/oneline", nil},
	{"internal/rate", nil},
	{"internal/simnet", nil},
	{"internal/threads", nil},
	{"mesh/cert", []string{"mesh/peer"}},
	{"mesh/token", []string{"mesh/peer", "mesh/cert"}},
	{"mesh/udp", nil},
	{"mesh/directory", []string{"mesh/peer"}},
	{"mesh/sites", []string{"mesh/cert", "internal/rate"}},
	{"mesh/hub", []string{"mesh/peer", "mesh/cert", "mesh/token", "mesh/sites", "mesh/hub"}},
	{"mesh", []string{"mesh/peer", "mesh/udp", "mesh/directory", "internal/wire"}},
	{"ice", []string{"mesh/peer", "internal/wire"}},
	{"relay", []string{"mesh/peer", "internal/wire"}},
	{"tun", []string{"mesh/peer", "internal/boot", "internal/oneline"}},
	{"dns", []string{"mesh/peer", "dns"}},
	{"shaper", []string{"mesh/peer"}},
	{"shaper/share", []string{"mesh/peer"}},
	{"shaper/estimate", []string{"mesh/peer"}},
	{"shaper/hint", nil},
	{"mpishim/profile/record", nil},
	{"mpishim/profile/traffic", []string{"mpishim/profile/record"}},
	{"mpishim/profile", []string{"mpishim/profile/record", "mpishim/profile/traffic", "internal/rate"}},
	{"mpishim", []string{"mesh/peer", "mpishim", "mpishim/profile", "mpishim/profile/record", "mpi/pmi", "internal/boot", "internal/oneline"}},
	{"mpi/internal/trunk", nil},
	{"mpi/internal/engine", []string{"mpi/internal/trunk", "internal/boot", "internal/oneline"}},
	{"mpi/datatype", nil},
	{"mpi/coll", nil},
	{"mpi/pmi", nil},
	{"mpi", []string{"mpi", "mpi/internal/engine", "mpi/datatype", "mpi/coll", "mpi/pmi", "shaper/hint", "mpishim/profile/record", "internal/boot"}},
	{"internal/state", []string{"mesh/peer", "mesh/cert"}},
	{"internal/node/api", []string{"mesh/peer", "mpishim"}},
	{"internal/node/jobs", []string{"internal/oneline"}},
	{"internal/node/metrics", []string{"mesh/peer", "relay", "shaper/hint", "shaper/share", "internal/node/api"}},
	{"internal/node", []string{"mesh", "ice", "relay", "tun", "dns", "shaper", "mpishim", "internal/wire", "internal/state", "internal/oneline", "internal/rate", "internal/threads", "internal/node/api", "internal/node/jobs", "internal/node/metrics"}},
	{"overlay", []string{"internal/node", "mesh/token"}},
	{"cmd", []string{"internal/node", "internal/node/api", "internal/cli", "internal/rate", "mpi", "mpishim", "mpishim/profile", "mesh/token"}},
	{"integration", []string{"internal/node", "internal/threads", "overlay", "internal/node/api", "internal/cli", "mpi", "mpi/datatype", "mpi/coll", "mpi/pmi", "mpishim", "integration"}},
	{"integration/programs/go/pace", []string{"mesh/peer", "shaper", "internal/rate"}}, // the pacer by itself
}

// owners says which rooms may import a third party directly. What is not listed
// may be imported anywhere: the toolkits of x/ and the like.
var owners = []struct {
	party string
	rooms []string
}{
	{"github.com/alecthomas/kong", []string{"cmd", "internal/cli", "integration/cmd"}},
	{"golang.zx2c4.com/wireguard", []string{"mesh", "tun"}},
	{"gvisor.dev/gvisor", []string{"tun"}},
	{"github.com/pion", []string{"ice"}},
	{"github.com/vishvananda/netlink", []string{"tun", "integration"}},
	{"github.com/google/nftables", []string{"tun", "integration"}},
	{"github.com/miekg/dns", []string{"dns"}},
	{"go.etcd.io/bbolt", []string{"mesh/hub"}},
	{"github.com/coreos/go-systemd", []string{"cmd"}},
	{"github.com/prometheus", []string{"internal/node/metrics"}},
}

// TestImports enforces the tables above on everything but tests, which may use
// what they need to.
func TestImports(t *testing.T) {
	for _, f := range readModule(t) {
		ours, theirs := imports(f.files)
		room, may := roomOf(f.path)
		if room == "" {
			if len(f.files) > 0 {
				t.Errorf("%s: belongs to no room of the table", f.path)
			}
			continue
		}
		for dep := range ours {
			if !mayImport(room, may, dep) {
				t.Errorf("%s imports %s; room %s may import %v", f.path, dep, room, may)
			}
		}
		for dep := range theirs {
			for _, o := range owners {
				if within(dep, o.party) && !matches(f.path, o.rooms) {
					t.Errorf("%s imports %s, which only %v may", f.path, dep, o.rooms)
				}
			}
		}
	}
}

// roomOf returns the most specific entry that a folder lies in.
func roomOf(path string) (room string, may []string) {
	for _, r := range rooms {
		if within(path, r.room) && len(r.room) > len(room) {
			room, may = r.room, r.may
		}
	}
	return room, may
}

// mayImport reports whether dep lies in a room that may names. Naming a room
// does not name the rooms of their own inside it, except for internal/node,
// which puts the house together.
func mayImport(room string, may []string, dep string) bool {
	depRoom, _ := roomOf(dep)
	for _, m := range may {
		if dep == m || depRoom == m || room == "internal/node" && within(dep, m) {
			return true
		}
	}
	return false
}
