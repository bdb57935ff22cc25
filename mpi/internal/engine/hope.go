package engine

// hope is how long the driver of a crowded process goes on polling when something has
// come, but not all that it waits for: the rest may be on its way from a process that
// runs on another processor, and who yields is back a turn of all others later. Whether
// that is so depends on the program, so it is tried, and less and less if in vain. (What
// has all come at once counts as a hope that came true.)
type hope struct {
	most  int  // polls; 0: the process is not crowded
	vain  uint // times in a row that it was in vain
	begun uint // times
}

// retryHope is how often it is tried in full after it has been given up.
const retryHope = 64

// begin returns how many polls it is worth.
func (h *hope) begin() int {
	h.begun++
	if h.begun%retryHope == 0 {
		return h.most
	}
	return h.most >> min(h.vain, 8)
}

// end tells whether all that was awaited has come.
func (h *hope) end(right bool) {
	if h.vain++; right {
		h.vain = 0
	}
}
