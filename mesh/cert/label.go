package cert

import (
	"fmt"
	"strings"
)

// maxDomain leaves room for NODE.SITE. before the domain in the 253 bytes of a
// DNS name (RFC 1035 §2.3.4).
const maxDomain = 253 - 2*(63+1)

// ValidLabel reports with a line for the user whether s can name a node, a site
// or a network: a lowercase DNS label of 1 to 63 of a-z, 0-9 and '-', beginning
// and ending with a letter or digit (RFC 1123 §2.1).
func ValidLabel(s string) error {
	ok := len(s) >= 1 && len(s) <= 63 && s[0] != '-' && s[len(s)-1] != '-'
	for i := 0; ok && i < len(s); i++ {
		c := s[i]
		ok = c >= 'a' && c <= 'z' || c >= '0' && c <= '9' || c == '-'
	}
	if !ok {
		return fmt.Errorf("%s is no valid name: use 1 to 63 of a-z, 0-9 and -, with no - at either end", quote(s))
	}
	return nil
}

// ValidDomain reports with a line for the user whether s can be a network's
// domain: labels joined by dots, at most 125 bytes, no dot at the end.
func ValidDomain(s string) error {
	if len(s) > maxDomain {
		return fmt.Errorf("domain %s is longer than %d bytes", quote(s), maxDomain)
	}
	for label := range strings.SplitSeq(s, ".") {
		if err := ValidLabel(label); err != nil {
			return fmt.Errorf("domain %s: %w", quote(s), err)
		}
	}
	return nil
}

// quote makes text of unknown origin fit for one line of an error.
func quote(s string) string {
	const most = 70
	if len(s) > most {
		return fmt.Sprintf("%+q…", s[:most])
	}
	return fmt.Sprintf("%+q", s)
}
