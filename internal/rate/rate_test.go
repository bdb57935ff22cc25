package rate

import (
	"strings"
	"testing"
	"unicode"
)

func TestParse(t *testing.T) {
	for _, tc := range []struct {
		text string
		want int64
	}{
		{"100Mb/s", 100e6}, {"100M", 100e6}, {"100m", 100e6}, {"1G", 1e9}, {"2.5gbit", 2.5e9}, {"2.3Gb/s", 2.3e9},
		{"12.5MB/s", 100e6}, {"12.5 MB/s", 100e6}, {"100 Mbit/s", 100e6}, {"1Gbps", 1e9}, {"1GBps", 8e9}, {"100000", 100_000},
		{"64kb/s", 64_000}, {"64Kbits", 64_000}, {"64kbit/s", 64_000}, {"64KBIT", 64_000}, {"1Mib/s", 1 << 20}, {"1MiB/s", 8 << 20},
		{"1T", 1e12}, {"100Tb/s", Max}, {"10k", Min}, {".5G", 500e6}, {"10000b", 10_000}, {"20000bits/s", 20_000},
	} {
		if got, err := Parse(tc.text); err != nil || got != tc.want {
			t.Errorf("Parse(%q) = %d, %v; want %d", tc.text, got, err, tc.want)
		}
	}
}

func TestParseRefuses(t *testing.T) {
	for _, tc := range []struct{ text, says string }{
		{"", "no rate"}, {"fast", "no rate"}, {"Mb/s", "no rate"}, {"-5M", "no rate"}, {"+5M", "no rate"}, {"1e9", "unit is unknown"}, {"1..5G", "no rate"},
		{"2,5G", "unit is unknown"}, {"1 000M", "unit is unknown"}, {"100MB", "B/s for bytes"}, {"100M/s", "unit is unknown"}, {"100Xb/s", "unit is unknown"},
		{"100Mb/s ", "unit is unknown"}, {"0", "from 10kb/s to 100Tb/s"}, {"0G", "no link's rate"}, {"100", "no link's rate"}, {"101T", "no link's rate"},
		{"99999999999999999999999999", "no link's rate"}, {"\x1b[2J1M", "no rate"}, {"1M\n", "unit is unknown"}, {strings.Repeat("9", 100), "too long"},
		{"inf", "no rate"}, {"0x10M", "unit is unknown"},
	} {
		got, err := Parse(tc.text)
		if err == nil || !strings.Contains(err.Error(), tc.says) || strings.ContainsFunc(err.Error(), unicode.IsControl) {
			t.Errorf("Parse(%q) = %d, %v; want one line with %q", tc.text, got, err, tc.says)
		}
	}
}

func TestFormat(t *testing.T) {
	for bits, want := range map[int64]string{
		100e6: "100Mb/s", 2.5e9: "2.5Gb/s", 1_234_567: "1.234567Mb/s", Min: "10kb/s", Max: "100Tb/s", 999_999: "999.999kb/s",
		99_999_999_999_999: "99.999999999999Tb/s", 0: "0b/s", -1e6: "-1Mb/s", 8: "8b/s",
	} {
		if got := Format(bits); got != want {
			t.Errorf("Format(%d) = %q, want %q", bits, got, want)
		}
	}
}

func TestCheck(t *testing.T) {
	for bits, good := range map[int64]bool{Min: true, Max: true, Min - 1: false, Max + 1: false, 0: false, -1: false} {
		if err := Check(bits); (err == nil) != good {
			t.Errorf("Check(%d) = %v", bits, err)
		}
	}
}

// FuzzParse: whatever is said is a rate within bounds that is written and read
// back as the same, or an error of one line.
func FuzzParse(f *testing.F) {
	for _, s := range []string{"100Mb/s", "2.5gbit", "12.5MB/s", "99.999999999999Tb/s", "1Mib", "100", "-1", "", "1\n", "£"} {
		f.Add(s, int64(len(s))*1e6)
	}
	f.Fuzz(func(t *testing.T, s string, bits int64) {
		got, err := Parse(s)
		switch {
		case err != nil:
			if strings.ContainsFunc(err.Error(), unicode.IsControl) || len(err.Error()) > 300 {
				t.Fatalf("Parse(%q): %q is not one line", s, err)
			}
		case Check(got) != nil:
			t.Fatalf("Parse(%q) = %d, which is out of bounds", s, got)
		default:
			bits = got
		}
		if Check(bits) != nil {
			return
		}
		if back, err := Parse(Format(bits)); err != nil || back != bits {
			t.Fatalf("%d is written %s and read as %d, %v", bits, Format(bits), back, err)
		}
	})
}
