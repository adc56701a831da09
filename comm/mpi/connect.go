package mpi

import (
	"bytes"
	"crypto/rand"
	"crypto/subtle"
	"encoding/binary"
	"errors"
	"fmt"
	"io"
	"net"
	"strings"
	"sync"
	"time"
)

// Time limits of connections.
const (
	addressTime = 2 * time.Second  // of one address
	connectTime = 10 * time.Second // of all
)

// An offer is what rank 0 tells the other ranks about its TCP port. It has no addresses if there is no port.
type offer struct {
	Addresses []string
	Greeting  []byte // that rank 0 sends first: on another host, another program may have the address
	Key       []byte // that a rank sends then, before its number
}

// keySize is the length of Greeting and of Key in bytes.
const keySize = 16

// connect returns a connection to rank 0, which has accepted it.
func (o *offer) connect(rank int) (net.Conn, error) {
	err := errors.New("no address")
	limit := time.Now().Add(connectTime)
	for _, address := range o.Addresses {
		if time.Now().After(limit) {
			break
		}
		var conn net.Conn
		if conn, err = o.dial(address); err == nil {
			return o.introduce(conn, rank)
		}
	}
	return nil, fmt.Errorf("tried %s: %w", strings.Join(o.Addresses, ", "), err)
}

// dial returns a connection to an address that sends the greeting.
func (o *offer) dial(address string) (net.Conn, error) {
	conn, err := net.DialTimeout("tcp", address, addressTime)
	if err != nil {
		return nil, err
	}
	greeting := make([]byte, keySize)
	if err = conn.SetDeadline(time.Now().Add(addressTime)); err == nil {
		_, err = io.ReadFull(conn, greeting)
	}
	if err == nil && !bytes.Equal(greeting, o.Greeting) {
		err = fmt.Errorf("%s: another program has the port", address)
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// introduce sends the number of a rank, and waits until rank 0 has accepted the connection.
func (o *offer) introduce(conn net.Conn, rank int) (net.Conn, error) {
	err := conn.SetDeadline(time.Now().Add(connectTime))
	if err == nil {
		_, err = conn.Write(binary.LittleEndian.AppendUint32(o.Key, uint32(rank)))
	}
	if err == nil {
		_, err = io.ReadFull(conn, make([]byte, 1))
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	if err != nil {
		return nil, errors.Join(err, conn.Close())
	}
	return conn, nil
}

// An entrance accepts the connections of the other ranks. Only rank 0 opens its own.
type entrance struct {
	listener net.Listener
	offer    offer

	mu     sync.Mutex
	peers  map[int]net.Conn // by rank
	closed bool
}

// open listens at an address, and adds connections to peers until close is called.
func (e *entrance) open(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	e.listener = l
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		return err
	}
	interfaces, err := net.InterfaceAddrs()
	if err != nil {
		return err
	}
	for _, a := range interfaces {
		if n, ok := a.(*net.IPNet); ok && !n.IP.IsLinkLocalUnicast() {
			e.offer.Addresses = append(e.offer.Addresses, net.JoinHostPort(n.IP.String(), port))
		}
	}
	e.offer.Greeting, e.offer.Key = make([]byte, keySize), make([]byte, keySize)
	rand.Read(e.offer.Greeting) // never fails
	rand.Read(e.offer.Key)
	go func() {
		for {
			conn, err := l.Accept()
			if err != nil {
				return // closed
			}
			go e.admit(conn)
		}
	}()
	return nil
}

// admit adds the connection of a rank that sends the key. It closes others.
func (e *entrance) admit(conn net.Conn) {
	message := make([]byte, keySize+4)
	err := conn.SetDeadline(time.Now().Add(connectTime))
	if err == nil {
		_, err = conn.Write(e.offer.Greeting)
	}
	if err == nil {
		_, err = io.ReadFull(conn, message)
	}
	if err == nil {
		err = conn.SetDeadline(time.Time{})
	}
	key, rank := message[:keySize], binary.LittleEndian.Uint32(message[keySize:])
	if err == nil && subtle.ConstantTimeCompare(key, e.offer.Key) == 1 && e.add(int(rank), conn) {
		_, _ = conn.Write([]byte{0}) // the rank reports if this does not arrive
		return
	}
	_ = conn.Close() // nothing is lost
}

// add adds a connection, and reports whether the entrance is open.
func (e *entrance) add(rank int, conn net.Conn) bool {
	e.mu.Lock()
	defer e.mu.Unlock()
	if !e.closed {
		e.peers[rank] = conn
	}
	return !e.closed
}

// close ends the acceptance of connections.
func (e *entrance) close() {
	e.mu.Lock()
	defer e.mu.Unlock()
	e.closed = true
	if e.listener != nil {
		_ = e.listener.Close() // nothing is lost
	}
}
