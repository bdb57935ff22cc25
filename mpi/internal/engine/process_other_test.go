//go:build !linux

package engine

func playRole() bool { return false }
