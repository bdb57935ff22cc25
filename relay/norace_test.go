//go:build !race

package relay

// raceDetector says whether the tests run under the race detector.
const raceDetector = false
