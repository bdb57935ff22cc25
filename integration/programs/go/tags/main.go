// Command tags sees whether a large transfer on one tag holds up small messages on
// others. Rank 0 sends rank 1 messages of -bulk bytes on tag 1, one after another,
// and meanwhile plays ping-pong with it on tags 2 to 5 in turns. It prints a line
// "tags BYTES MEAN_US P99_US MBPS": half a round trip of the small messages, on
// average and in the 99th percentile, and what tag 1 has carried in Mb/s.
package main

import (
	"flag"
	"fmt"
	"slices"
	"time"

	"github.com/meshmpi/meshmpi/mpi"
)

// The tags, and the size of the small messages.
const (
	tagBulk  = 1
	tagFirst = 2
	tagLast  = 5
	small    = 64
)

func main() {
	bulk := flag.Int("bulk", 64<<10, "bytes of the large messages")
	seconds := flag.Float64("seconds", 5, "how long")
	flag.Parse()
	mpi.Main(func(c *mpi.Comm) error {
		if c.Size() != 2 {
			return fmt.Errorf("tags needs two ranks, not %d", c.Size())
		}
		done := make(chan error, 1)
		end := time.Now().Add(time.Duration(*seconds * float64(time.Second)))
		began, sent := time.Now(), 0
		go func() { // ends when rank 0 has sent a message of one byte
			var err error
			sent, err = stream(c, *bulk, end)
			done <- err
		}()
		times, err := play(c, end)
		if err == nil {
			err = <-done
		}
		if err != nil || c.Rank() != 0 {
			return err
		}
		took := time.Since(began)
		var sum time.Duration
		for _, t := range times {
			sum += t
		}
		slices.Sort(times)
		us := func(d time.Duration) float64 { return float64(d) / 1e3 }
		fmt.Printf("tags %d %.1f %.1f %.1f\n", small, us(sum/time.Duration(len(times))), us(times[len(times)*99/100]), float64(sent)*8/1e6/took.Seconds())
		return nil
	})
}

// stream sends or receives on the bulk tag, and returns how many bytes were sent.
func stream(c *mpi.Comm, size int, end time.Time) (sent int, err error) {
	buf := make([]byte, size)
	if c.Rank() == 1 {
		for {
			st, err := mpi.Recv(c, buf, 0, tagBulk)
			if err != nil || st.Bytes == 1 {
				return 0, err
			}
		}
	}
	for ; time.Now().Before(end); sent += size {
		if err := mpi.Send(c, buf, 1, tagBulk); err != nil {
			return sent, err
		}
	}
	return sent, mpi.Send(c, buf[:1], 1, tagBulk)
}

// play is the ping-pong; its last message is empty.
func play(c *mpi.Comm, end time.Time) (times []time.Duration, err error) {
	buf := make([]byte, small)
	for i := 0; ; i++ {
		tag := tagFirst + i%(tagLast-tagFirst+1)
		if c.Rank() == 1 {
			st, err := mpi.Recv(c, buf, 0, tag)
			if err != nil || st.Bytes == 0 {
				return nil, err
			}
			if err := mpi.Send(c, buf, 0, tag); err != nil {
				return nil, err
			}
			continue
		}
		if len(times) > 0 && !time.Now().Before(end) {
			return times, mpi.Send(c, buf[:0], 1, tag)
		}
		began := time.Now()
		if err := mpi.Send(c, buf, 1, tag); err != nil {
			return nil, err
		}
		if _, err := mpi.Recv(c, buf, 1, tag); err != nil {
			return nil, err
		}
		times = append(times, time.Since(began)/2)
	}
}
