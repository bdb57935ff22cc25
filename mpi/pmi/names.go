package pmi

import "sync"

// maxNames bounds the services that are published at a time.
const maxNames = 4096

// Names is a name service. Jobs that share one find one another's ports. A name
// goes with the rank that published it, if that dies.
type Names struct {
	mu   sync.Mutex
	list map[string]published
}

type published struct {
	port string // as it travels
	by   *Server
	rank int
}

// NewNames returns an empty name service.
func NewNames() *Names { return &Names{list: map[string]published{}} }

// publish returns "", or why not in a word. A rank may change its own port.
func (n *Names) publish(by *Server, rank int, name, port string) string {
	n.mu.Lock()
	defer n.mu.Unlock()
	old, taken := n.list[name]
	switch {
	case name == "" || len(name) > maxName || port == "" || len(port) > maxChunk:
		return "name_or_port_too_long"
	case taken && (old.by != by || old.rank != rank):
		return "the_name_is_taken"
	case !taken && len(n.list) >= maxNames:
		return "too_many_names"
	}
	n.list[name] = published{port, by, rank}
	return ""
}

func (n *Names) lookup(name string) (port string, ok bool) {
	n.mu.Lock()
	defer n.mu.Unlock()
	p, ok := n.list[name]
	return p.port, ok
}

func (n *Names) unpublish(name string) bool {
	n.mu.Lock()
	defer n.mu.Unlock()
	_, ok := n.list[name]
	delete(n.list, name)
	return ok
}

// drop takes back what a rank has published.
func (n *Names) drop(by *Server, rank int) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, p := range n.list {
		if p.by == by && p.rank == rank {
			delete(n.list, name)
		}
	}
}

// Forget takes back what any rank of the server's job has published.
func (n *Names) Forget(by *Server) {
	n.mu.Lock()
	defer n.mu.Unlock()
	for name, p := range n.list {
		if p.by == by {
			delete(n.list, name)
		}
	}
}
