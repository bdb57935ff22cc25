// Package house holds no code, only tests of how the code is built: which
// package may import which, and that every decoder of bytes from outside has a
// fuzz target. The tables in the tests are the rules.
package house
