//go:build (linux || darwin) && (amd64 || arm64) && !nompi

package mpi

import (
	"testing"
	"unsafe"

	"github.com/microscale-go/microscale/comm"
)

// TestSegmentOrder completes the segments of a message in the opposite order, as MPI may: the message
// is complete with its first segment, not with its last.
func TestSegmentOrder(t *testing.T) {
	const segments = 3
	for _, send := range []bool{false, true} {
		var started, complete uintptr // requests are numbered from 1 in the order of segments
		transfer := func(_ unsafe.Pointer, _ int32, _ uintptr, _, _ int32, _ uintptr, request *uintptr) int32 {
			started++
			*request = started
			return 0
		}
		sizes := [segments]int32{segmentBytes, segmentBytes, 1}
		var tested uintptr
		lib := &library{
			isend: transfer,
			irecv: transfer,
			test: func(request *uintptr, done *int32, _ unsafe.Pointer) int32 {
				tested = *request
				if *request > segments-complete {
					*done = 1
				}
				return 0
			},
			getCount: func(_ unsafe.Pointer, _ uintptr, n *int32) int32 {
				*n = sizes[tested-1]
				return 0
			},
		}
		o := owner{Transport: &Transport{lib: lib}}
		messages := []comm.Message{{Peer: 1, Send: send, Data: make([]byte, 2*segmentBytes+1)}}
		pending := comm.NewPending(messages)
		o.post(batch{messages: messages, pending: pending})
		for i := range uintptr(segments) {
			complete = i
			o.progress()
			if len(pending.Missing()) != 1 {
				t.Fatalf("send %v: the message is complete after %d of %d segments", send, complete, segments)
			}
		}
		complete = segments
		o.progress()
		if len(pending.Missing()) != 0 || len(o.active) != 0 {
			t.Errorf("send %v: %d segments are active after all are complete, want 0", send, len(o.active))
		}
	}
}
