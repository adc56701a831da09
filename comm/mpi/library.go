//go:build (linux || darwin) && (amd64 || arm64) && !nompi

package mpi

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"unsafe"

	"github.com/ebitengine/purego"
)

// A library is an MPI library that was loaded: its functions and the constants of its ABI.
// Handles are uintptr: pointers of Open MPI and of the standard ABI, small numbers of MPICH.
type library struct {
	name string
	abi  abi

	initThread       func(argc, argv unsafe.Pointer, required int32, provided *int32) int32
	commRank         func(comm uintptr, rank *int32) int32
	commSize         func(comm uintptr, size *int32) int32
	setErrorHandler  func(comm, handler uintptr) int32
	isend            func(data unsafe.Pointer, count int32, datatype uintptr, peer, tag int32, comm uintptr, request *uintptr) int32
	irecv            func(data unsafe.Pointer, count int32, datatype uintptr, peer, tag int32, comm uintptr, request *uintptr) int32
	test             func(request *uintptr, flag *int32, status unsafe.Pointer) int32
	getCount         func(status unsafe.Pointer, datatype uintptr, count *int32) int32
	errorString      func(code int32, text *byte, length *int32) int32
	abort            func(comm uintptr, code int32) int32
	finalize         func() int32
	exit             func(code int32)
	world, bytes     uintptr
	returnErrors     uintptr
	threadsFunnelled int32
}

// An abi holds the values of handles, which mpi.h defines: names of objects in Open MPI,
// numbers elsewhere. They are from each project's mpi.h and from chapter 20 of MPI 5.0.
type abi struct {
	kind                      kind
	world, bytes, returnError uintptr
	threadsFunnelled          int32
}

var abis = []abi{
	{kind: openMPI, threadsFunnelled: 1}, // handles are addresses of symbols
	{mpich, 0x44000000, 0x4c00010d, 0x54000001, 1},
	{standard, 0x101, 0x249, 0x143, 1024},
}

// statusBytes is enough for a status of every ABI: 20 to 32 bytes.
const statusBytes = 64

// libraryNames are the names under which systems have MPI libraries, by their kind.
var libraryNames = map[kind][]string{
	openMPI:  {"libmpi.so.40", "libmpi.40.dylib"},
	mpich:    {"libmpich.so.12", "libmpi.so.12", "libmpi.12.dylib"},
	standard: {"libmpi_abi.so.1", "libmpi_abi.1.dylib"},
}

// load loads the library of a file or, where file is empty, the first that the system has:
// those of the launcher's kind first.
func load(file string, l Launcher) (*library, error) {
	names := []string{file}
	if file == "" {
		names = nil
		first := l.kind
		if first != anyKind {
			names = append(names, libraryNames[first]...)
		}
		for _, k := range []kind{standard, openMPI, mpich} {
			if k != first {
				names = append(names, libraryNames[k]...)
			}
		}
	}
	// UCX would replace Go's handler of SIGSEGV, and a nil dereference would end the process
	// without a Go panic.
	if os.Getenv("UCX_HANDLE_ERRORS") == "" {
		if err := os.Setenv("UCX_HANDLE_ERRORS", "none"); err != nil {
			return nil, fmt.Errorf("load MPI: %w", err)
		}
	}
	var problems []error
	for _, name := range names {
		handle, err := purego.Dlopen(name, purego.RTLD_NOW|purego.RTLD_GLOBAL) // components of Open MPI 4 need its symbols
		if err != nil {
			problems = append(problems, err)
			continue
		}
		return bind(name, handle)
	}
	if file != "" {
		return nil, fmt.Errorf("load MPI: %w: use the file of an MPI library", errors.Join(problems...))
	}
	return nil, fmt.Errorf("load MPI: found none of %s; install Open MPI or MPICH, or name the library's file", strings.Join(names, ", "))
}

// bind finds the functions and handles of a library.
func bind(name string, handle uintptr) (*library, error) {
	k := mpich
	if _, err := purego.Dlsym(handle, "ompi_mpi_comm_world"); err == nil {
		k = openMPI
	} else if strings.HasPrefix(filepath.Base(name), "libmpi_abi") {
		k = standard
	}
	lib := &library{name: name}
	for _, a := range abis {
		if a.kind == k {
			lib.abi = a
		}
	}
	lib.world, lib.bytes, lib.returnErrors, lib.threadsFunnelled = lib.abi.world, lib.abi.bytes, lib.abi.returnError, lib.abi.threadsFunnelled
	for _, f := range []struct {
		symbol   string
		function any
	}{
		{"MPI_Init_thread", &lib.initThread}, {"MPI_Comm_rank", &lib.commRank}, {"MPI_Comm_size", &lib.commSize},
		{"MPI_Comm_set_errhandler", &lib.setErrorHandler}, {"MPI_Isend", &lib.isend}, {"MPI_Irecv", &lib.irecv},
		{"MPI_Test", &lib.test}, {"MPI_Get_count", &lib.getCount}, {"MPI_Error_string", &lib.errorString},
		{"MPI_Abort", &lib.abort}, {"MPI_Finalize", &lib.finalize},
	} {
		address, err := purego.Dlsym(handle, f.symbol)
		if err != nil {
			return nil, fmt.Errorf("load MPI: %s has no function %s: use an MPI library", name, f.symbol)
		}
		purego.RegisterFunc(f.function, address)
	}
	address, err := purego.Dlsym(purego.RTLD_DEFAULT, "exit")
	if err != nil {
		return nil, fmt.Errorf("load MPI: %w", err)
	}
	purego.RegisterFunc(&lib.exit, address)
	if k == openMPI {
		for symbol, value := range map[string]*uintptr{
			"ompi_mpi_comm_world": &lib.world, "ompi_mpi_byte": &lib.bytes, "ompi_mpi_errors_return": &lib.returnErrors,
		} {
			if *value, err = purego.Dlsym(handle, symbol); err != nil {
				return nil, fmt.Errorf("load MPI: %s has no %s", name, symbol)
			}
		}
	}
	return lib, nil
}

// check returns an error for the result of a function.
func (lib *library) check(function string, code int32) error {
	if code == 0 {
		return nil
	}
	text := make([]byte, 1<<13) // MPI_MAX_ERROR_STRING is 256 to 1024
	var n int32
	lib.errorString(code, &text[0], &n)
	return fmt.Errorf("%s: %s", function, strings.TrimRight(string(text[:max(0, min(int(n), len(text)))]), "\x00\n "))
}
