// Package datatype describes what a message is made of: MPI's basic and derived
// datatypes (MPI 4.1 chapter 5), how they lie in memory, how they are gathered
// into a message and scattered from one, and the predefined reductions over them
// (section 6.9).
//
// It exists because the engine moves bytes and knows nothing of their meaning.
// A [Type] is immutable, so any number of goroutines may use it, and there is
// nothing to commit or to free. A packed message is the values of the type map
// in order, without gaps and without a header, in the sender's byte order; a
// receiver of the other order calls [Type.Swap] on it. The portable form of
// MPI's external32 is the same with the big end first.
//
// Layouts are kept as small trees of loops and lists over contiguous runs
// ([Run]), never as one entry per block of a vector: a column of a million rows
// is one loop. Every tree is brought to a normal form when it is made, in which
// neighbours that touch are one run and a regular list is a loop.
//
// What it does not do: it sends nothing, knows no communicator, and reads no
// pointer out of anybody's memory. It copies between byte slices whose bounds it
// has checked.
package datatype
