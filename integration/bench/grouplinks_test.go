package bench

import "testing"

func TestParseConnections(t *testing.T) {
	far := map[string]bool{"100.80.0.7": true, "100.80.0.8": true}
	text := `0 0 100.80.0.3:40000 100.80.0.7:5001 users:(("colls-go",pid=77,fd=9))
0      0        [::ffff:100.80.0.3]:5001     [::ffff:100.80.0.8]:39999 users:(("colls-go",pid=77,fd=11))
0 0 100.80.0.3:5001 100.80.0.4:40100 users:(("colls-go",pid=77,fd=12))
0 0 100.80.0.3:7000 100.80.0.7:40200 users:(("meshrun",pid=70,fd=12))
0 0 100.80.0.3:7722 100.80.0.8:40300
`
	for program, want := range map[string]int{"colls-go": 2, "meshrun": 1, "pp-go": 0, "": 0} {
		if got := parseConnections(text, program, far); got != want {
			t.Errorf("connections of %q: %d, want %d", program, got, want)
		}
	}
}
