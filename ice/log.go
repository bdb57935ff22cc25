package ice

import (
	"context"
	"fmt"
	"log/slog"

	"github.com/pion/logging"
)

// pionLog passes pion's messages on as details. None of them matters by itself
// to whoever reads the log, whatever pion calls it: a check that fails is the
// rule, not an error.
type pionLog struct{ log *slog.Logger }

var (
	_ logging.LoggerFactory = pionLog{}
	_ logging.LeveledLogger = pionLog{}
)

func (l pionLog) NewLogger(string) logging.LeveledLogger { return l }

func (l pionLog) Trace(string)          {}
func (l pionLog) Tracef(string, ...any) {}
func (l pionLog) Debug(string)          {}
func (l pionLog) Debugf(string, ...any) {}

func (l pionLog) Info(msg string)  { l.say("%s", msg) }
func (l pionLog) Warn(msg string)  { l.say("%s", msg) }
func (l pionLog) Error(msg string) { l.say("%s", msg) }

func (l pionLog) Infof(format string, args ...any)  { l.say(format, args...) }
func (l pionLog) Warnf(format string, args ...any)  { l.say(format, args...) }
func (l pionLog) Errorf(format string, args ...any) { l.say(format, args...) }

func (l pionLog) say(format string, args ...any) {
	if l.log.Enabled(context.Background(), slog.LevelDebug) {
		l.log.Debug("pion", "says", fmt.Sprintf(format, args...))
	}
}
