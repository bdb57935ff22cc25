package mpishim

import (
	"errors"
	"fmt"
	"io/fs"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
)

// agent is the remote shell, by name: it is looked up in PATH on every node.
const agent = "meshrsh"

// Environment returns, as NAME=value, what makes anybody's own mpirun and
// mpiexec work over the overlay, for every family at once. PATH is not in it:
// see Exports. The binding policy is left to the user. MESH_NODE and MESH_SITE
// are not in it either: Hydra would hand this node's to ranks on the others,
// which have their own from the session that the agent opens.
func Environment(o Overlay) []string {
	cidr := o.CIDR.String()
	env := []string{"MESH_STATE=" + o.StateDir}
	for _, p := range openMPIParams(cidr, 0) {
		env = append(env, "OMPI_MCA_"+p.name+"="+p.value)
	}
	env = append(env,
		"PRTE_MCA_plm_ssh_agent="+agent,
		"PRTE_MCA_prte_if_include="+cidr,
		"HYDRA_LAUNCHER=ssh",
		"HYDRA_LAUNCHER_EXEC="+agent,
		"HYDRA_IFACE="+o.TUN,
		hydraNoFork,
		"I_MPI_HYDRA_BOOTSTRAP=ssh",
		"I_MPI_HYDRA_BOOTSTRAP_EXEC="+agent,
		"I_MPI_HYDRA_IFACE="+o.TUN,
	)
	return append(env, dataVariables(o.TUN, true)...)
}

// hydraNoFork has Hydra start its proxy on this node by the agent too, so that
// ranks here get what AgentCommand gives the others.
const hydraNoFork = "HYDRA_LAUNCHER_AUTOFORK=0"

// dataVariables restrict UCX and libfabric, MPICH's two transports, to the
// overlay. Shared memory is safe to offer: UCX takes it only between processes
// that see the same machine, PID and IPC namespace.
func dataVariables(tun string, shared bool) []string {
	tls := "tcp,self"
	if shared {
		tls += ",sm"
	}
	return []string{"UCX_TLS=" + tls, "UCX_NET_DEVICES=" + tun, "FI_PROVIDER=tcp", "FI_TCP_IFACE=" + tun}
}

// Exports returns Environment as lines for a POSIX shell, PATH included, or the
// lines that undo it.
func Exports(o Overlay, unset bool) string {
	var b strings.Builder
	for _, kv := range Environment(o) {
		name, value, _ := strings.Cut(kv, "=")
		if unset {
			fmt.Fprintf(&b, "unset %s\n", name)
		} else {
			fmt.Fprintf(&b, "export %s=%s\n", name, Quote(value))
		}
	}
	if dir := filepath.Clean(o.BinDir); o.BinDir != "" {
		if unset { // what was put there by us leads
			fmt.Fprintf(&b, "if [ -n \"${%s:-}\" ]; then PATH=\"${PATH#%s:}\"; export PATH; unset %s; fi\n", varPath, doubleQuoted(dir), varPath)
		} else {
			fmt.Fprintf(&b, "case \":$PATH:\" in *:%s:*) ;; *) PATH=%s:\"$PATH\"; export PATH; export %s=1 ;; esac\n", Quote(dir), Quote(dir), varPath)
		}
	}
	return b.String()
}

// varPath says that Exports has put its directory into PATH.
const varPath = "MESHCTL_ENV_PATH"

// plain are the characters that no shell changes.
func plain(r rune) bool {
	return r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' || strings.ContainsRune("_-./:,@%+=", r)
}

// Quote makes one word of s for a POSIX shell.
func Quote(s string) string {
	if s != "" && !strings.ContainsFunc(s, func(r rune) bool { return !plain(r) }) {
		return s
	}
	return "'" + strings.ReplaceAll(s, "'", `'\''`) + "'"
}

// doubleQuoted escapes s for use inside double quotes in a pattern.
func doubleQuoted(s string) string {
	var b strings.Builder
	for _, r := range s {
		if !plain(r) && r != ' ' {
			b.WriteByte('\\')
		}
		b.WriteRune(r)
	}
	return b.String()
}

// setenv returns env with name=value in place of any other value.
func setenv(env []string, kv string) []string {
	name, _, _ := strings.Cut(kv, "=")
	return append(unsetenv(env, name), kv)
}

func unsetenv(env []string, name string) []string {
	return slices.DeleteFunc(slices.Clone(env), func(s string) bool { return strings.HasPrefix(s, name+"=") })
}

// getenv returns the value that counts, the last, and "" where there is none.
func getenv(env []string, name string) (value string) {
	for _, kv := range env {
		if v, ok := strings.CutPrefix(kv, name+"="); ok {
			value = v
		}
	}
	return value
}

// PathOf returns the PATH that -x gives ranks everywhere, "" where it gives none;
// environ is ours.
func PathOf(export, environ []string) (path string) {
	for _, x := range export {
		if name, value, given := strings.Cut(x, "="); name == "PATH" {
			if path = value; !given {
				path = getenv(environ, name)
			}
		}
	}
	return path
}

// lookPath finds a program as a shell would whose PATH is path, but for what is
// relative in it: ranks start elsewhere.
func lookPath(prog, path string) (found string, err error) {
	if strings.Contains(prog, "/") {
		return osexec.LookPath(prog)
	}
	first := error(&osexec.Error{Name: prog, Err: osexec.ErrNotFound})
	for _, dir := range filepath.SplitList(path) {
		if !filepath.IsAbs(dir) {
			continue
		}
		found, err := osexec.LookPath(filepath.Join(dir, prog))
		if err == nil {
			return found, nil
		}
		if errors.Is(first, osexec.ErrNotFound) && !errors.Is(err, fs.ErrNotExist) && !errors.Is(err, syscall.ENOTDIR) && !errors.Is(err, syscall.EISDIR) {
			first = err // it is there, and cannot be executed
		}
	}
	return "", first
}
