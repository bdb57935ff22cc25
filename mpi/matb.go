package mpi

// The attributes by which a program says how fast it may send, as GridMPI has
// them (Takano et al., PFLDnet 2005, and its attributes of a communicator). They are kept with a communicator and given to its
// duplicates; meshd does not pace by them yet.

// Rate is a bandwidth in bits per second.
type Rate int64

// MaxRate is the bandwidth of the link between the caller's site and the others.
var MaxRate = NewKey(KeyOptions[Rate]{Copy: DupValue[Rate]})

// MATB is the maximum allowable transmission bandwidth of the caller's node: what
// it may send to other sites while all members of the communicator do.
var MATB = NewKey(KeyOptions[Rate]{Copy: DupValue[Rate]})
