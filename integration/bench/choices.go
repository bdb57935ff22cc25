package bench

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// Choices are lists by what they choose, of words with commas between.
type Choices map[string]string

// only refuses a choice that a benchmark does not have.
func (c Choices) only(names ...string) error {
	for name := range c {
		switch {
		case len(names) == 0:
			return fmt.Errorf("--with %s: there is nothing to choose", name)
		case !slices.Contains(names, name):
			return fmt.Errorf("--with %s: what can be chosen is %s", name, strings.Join(names, ", "))
		}
	}
	return nil
}

// rates reads the rates that are chosen, in Mb/s, as b/s; without any they are usual.
func (c Choices) rates(usual []int64) ([]int64, error) {
	return listed(c, "rates", usual, func(s string) (int64, error) {
		n, err := strconv.ParseInt(s, 10, 32)
		if err == nil && n < 1 {
			err = fmt.Errorf("%q is not at least 1 Mb/s", s)
		}
		return n * 1_000_000, err
	})
}

// listed reads the list that chooses what; without one it is usual.
func listed[T any](with Choices, what string, usual []T, read func(string) (T, error)) (all []T, err error) {
	if with[what] == "" {
		return usual, nil
	}
	for word := range strings.SplitSeq(with[what], ",") {
		v, err := read(strings.TrimSpace(word))
		if err != nil {
			return nil, fmt.Errorf("--with %s=%s: %w", what, with[what], err)
		}
		all = append(all, v)
	}
	return all, nil
}

// oneOf accepts some words alone.
func oneOf(words ...string) func(string) (string, error) {
	return func(word string) (string, error) {
		if !slices.Contains(words, word) {
			return "", fmt.Errorf("%q is none of %s", word, strings.Join(words, ", "))
		}
		return word, nil
	}
}
