package bench

import (
	"context"
	"debug/buildinfo"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"runtime"
	"strings"
	"time"

	"golang.org/x/sys/unix"
)

// Place says where and of what tables were made.
type Place struct {
	Commit string
	Go     string
	Kernel string
	CPU    string
	Cores  int
	Date   time.Time
}

// Here describes this machine and the binaries in bin, which must have been
// built from the working directory.
func Here(ctx context.Context, bin string) (Place, error) {
	p := Place{CPU: "unknown processor", Cores: runtime.NumCPU(), Date: time.Now()}
	info, err := buildinfo.ReadFile(filepath.Join(bin, "meshd"))
	if err != nil {
		return p, fmt.Errorf("bench: %w; run make build first", err)
	}
	p.Go, p.Commit = info.GoVersion, commit(ctx)
	var u unix.Utsname
	if err := unix.Uname(&u); err != nil {
		return p, fmt.Errorf("bench: uname: %w", err)
	}
	p.Kernel = unix.ByteSliceToString(u.Sysname[:]) + " " + unix.ByteSliceToString(u.Release[:])
	cpu, err := os.ReadFile("/proc/cpuinfo")
	if err != nil {
		return p, fmt.Errorf("bench: %w", err)
	}
	for line := range strings.Lines(string(cpu)) {
		if key, value, _ := strings.Cut(line, ":"); strings.TrimSpace(key) == "model name" {
			p.CPU = strings.TrimSpace(value)
			break
		}
	}
	return p, nil
}

// commit names the commit in the working directory, and says whether it is
// changed, other than by us. Builds do not always carry it (-buildvcs).
func commit(ctx context.Context) string {
	head, err := exec.CommandContext(ctx, "git", "rev-parse", "--short=12", "HEAD").Output()
	if err != nil {
		return "unknown" // a source archive
	}
	name := strings.TrimSpace(string(head))
	changes, err := exec.CommandContext(ctx, "git", "status", "--porcelain", "--untracked-files=no", "--", ":/", ":!/docs/benchmarks.md", ":!/docs/plots").Output()
	if err != nil || len(changes) > 0 {
		name += " with changes"
	}
	return name
}

// String is the line that stands under each table's title.
func (p Place) String() string {
	return fmt.Sprintf("Commit %s, %s, %s, %d × %s, %s", p.Commit, p.Date.Format("2006-01-02"), p.Kernel, p.Cores, p.CPU, p.Go)
}

// Markdown returns the table as a section of the document.
func (t Table) Markdown(p Place) string {
	var b strings.Builder
	fmt.Fprintf(&b, "%s\n## %s\n\n%s; took %.0f s, the processors were %.0f %% busy before.\n\n%s\n\n",
		mark(t.Name), t.Title, p, t.Took.Seconds(), 100*t.Busy, t.Method)
	if len(t.Head) > 0 {
		grid(&b, t.Head, t.Rows)
	}
	for i, p := range t.Parts {
		if i > 0 || len(t.Head) > 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "### %s\n\n", p.Title)
		if p.Text != "" {
			fmt.Fprintf(&b, "%s\n", p.Text)
		}
		if p.Text != "" && len(p.Head) > 0 {
			b.WriteString("\n")
		}
		if len(p.Head) > 0 {
			grid(&b, p.Head, p.Rows)
		}
	}
	for i, v := range t.Verdicts {
		if i == 0 {
			b.WriteString("\n")
		}
		fmt.Fprintf(&b, "- %s: %s\n", map[bool]string{true: "holds", false: "**does not hold**"}[v.Good], v.Text)
	}
	for _, d := range t.Drawings {
		fmt.Fprintf(&b, "\n![%s](plots/%s)\n", d.About, d.File)
	}
	return b.String()
}

// grid writes rows under their head.
func grid(b *strings.Builder, head []string, rows [][]string) {
	row := func(cells []string) { fmt.Fprintf(b, "| %s |\n", strings.Join(cells, " | ")) }
	row(head)
	b.WriteString("|" + strings.Repeat("---|", len(head)) + "\n")
	for _, r := range rows {
		row(r)
	}
}

// mark stands above each section, so that it can be found and replaced.
func mark(name string) string { return "<!-- bench " + name + " -->" }

// preface opens the document.
const preface = `# Benchmarks

Made by ` + "`make bench`" + ` (` + "`go run ./integration/cmd/bench --help`" + ` lists the tables; ` + "`--write docs/benchmarks.md`" + ` puts them here).
Do not edit by hand.

All hosts are network namespaces of one machine and share its cores, daemons and programs alike, so absolute figures say
little about two machines and a cable, and less where something else kept the processors busy before. What is compared was
measured in turns in one run. Figures are medians with (least–greatest); a ratio is the median of those within the rounds, with
the least and the greatest; in tables before 26 November 2026 it is that of the medians.
`

// WriteDocument replaces the sections of the given tables in the document at
// path, and keeps those of other benchmarks. The file is made if it is missing.
// Drawings are put beside it, into plots.
func WriteDocument(path string, p Place, tables []Table) error {
	old, err := os.ReadFile(path)
	if err != nil && !os.IsNotExist(err) {
		return fmt.Errorf("bench: %w", err)
	}
	for _, t := range tables {
		for _, d := range t.Drawings {
			if err := d.plot.write(filepath.Join(filepath.Dir(path), "plots", d.File)); err != nil {
				return err
			}
		}
	}
	if err := os.WriteFile(path, []byte(merge(string(old), p, tables)), 0o644); err != nil {
		return fmt.Errorf("bench: %w", err)
	}
	return nil
}

// merge makes the document from what it was and what is new.
func merge(old string, p Place, tables []Table) string {
	sections := map[string]string{}
	for _, b := range All() {
		_, after, found := strings.Cut(old, mark(b.Name)+"\n")
		if !found {
			continue
		}
		body, _, _ := strings.Cut(after, "<!-- bench ")
		sections[b.Name] = mark(b.Name) + "\n" + strings.TrimSpace(body) + "\n"
	}
	for _, t := range tables {
		sections[t.Name] = t.Markdown(p)
	}
	doc := preface
	for _, b := range All() {
		if s := sections[b.Name]; s != "" {
			doc += "\n" + s
		}
	}
	return doc
}
