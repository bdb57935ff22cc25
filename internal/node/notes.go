package node

import "sync"

// notes are standing remarks that status shows, each under a key of its own so
// that saying a thing twice shows it once. The zero value is ready.
type notes struct {
	mu   sync.Mutex
	keys []string // in the order of their first appearance
	text map[string]string
}

// set makes a remark, in place of the one with the same key.
func (n *notes) set(key, text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if n.text == nil {
		n.text = map[string]string{}
	}
	if _, ok := n.text[key]; !ok {
		n.keys = append(n.keys, key)
	}
	n.text[key] = text
}

// clear takes a remark back. Its place stays kept for it.
func (n *notes) clear(key string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	if _, ok := n.text[key]; ok {
		n.text[key] = ""
	}
}

// all returns the remarks that stand.
func (n *notes) all() []string {
	n.mu.Lock()
	defer n.mu.Unlock()
	var list []string
	for _, k := range n.keys {
		if t := n.text[k]; t != "" {
			list = append(list, t)
		}
	}
	return list
}
