package mpi

// The attributes by which a program says how fast it may send, as GridMPI has them
// (Takano et al., PFLDnet 2005: attributes of a communicator, with which its MPI
// calls PSPacer's psp_set_limit). GridMPI counts in kbyte/s, and so do the attributes
// of contrib/meshmpi.h; here a Rate is bits per second.

// Rate is a bandwidth in bits per second.
type Rate int64

// MaxRate is the bandwidth of the link between the caller's site and the others, to
// read only: what meshd says at that moment. It is unset where meshd does not say,
// or there is none; to set it is an error of class ErrKeyval. On a window it is never
// set.
var MaxRate = NewKey(KeyOptions[Rate]{Copy: DupValue[Rate]})

// MATB is the maximum allowable transmission bandwidth of the caller's node: what
// it may send to other sites while all members of the communicator do. Setting it
// takes effect at once, before an all-to-all's own share and the job's --pattern; of
// several communicators the one that was set last counts. 0 or less, DeleteAttr
// and freeing that communicator put back what meshrun --matb says for the whole job,
// else nothing. A duplicate has the value, but only setting it there takes effect.
// Of several programs on a node the lowest counts. On a window it is kept and has
// no effect.
var MATB = NewKey(KeyOptions[Rate]{Copy: DupValue[Rate]})
