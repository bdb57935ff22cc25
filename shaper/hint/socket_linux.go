package hint

import (
	"encoding/binary"
	"errors"
	"fmt"

	"golang.org/x/sys/unix"
)

// What a program sends when it has connected, with the page's descriptor beside it
// (SCM_RIGHTS): magic and version as in the page. Nothing is answered, and nothing
// follows.
const helloSize = 8

func appendHello(b []byte) []byte {
	b = binary.NativeEndian.AppendUint32(b, pageMagic)
	return binary.NativeEndian.AppendUint32(b, pageVersion)
}

// decodeHello checks a program's message.
func decodeHello(b []byte) error {
	if len(b) != helloSize || binary.NativeEndian.Uint32(b) != pageMagic {
		return errors.New("hint: the message is no offer of a page")
	}
	if v := binary.NativeEndian.Uint32(b[4:]); v != pageVersion {
		return fmt.Errorf("hint: version %d of pages is not known; this meshd knows %d", v, pageVersion)
	}
	return nil
}

// maxFiles are the descriptors that a message can bring before the kernel cuts the
// rest off.
const maxFiles = 4

// parseFiles finds the descriptors in what came beside a message. All of them are
// the caller's to close, whatever the message said.
func parseFiles(oob []byte) (files []int) {
	msgs, err := unix.ParseSocketControlMessage(oob)
	if err != nil {
		return nil
	}
	for i := range msgs {
		if len(msgs[i].Data)%4 != 0 { // the kernel sends none; ParseUnixRights panics
			continue
		}
		if fds, err := unix.ParseUnixRights(&msgs[i]); err == nil {
			files = append(files, fds...)
		}
	}
	return files
}
