# Print an optspec for argparse to handle cmd's options that are independent of any subcommand.
function __fish_headstart_global_optspecs
    string join \n h/help V/version
end

function __fish_headstart_needs_command
    # Figure out if the current invocation already has a command.
    set -l cmd (commandline -opc)
    set -e cmd[1]
    argparse -s (__fish_headstart_global_optspecs) -- $cmd 2>/dev/null
    or return
    if set -q argv[1]
        # Also print the command, so this can be used to figure out what it is.
        echo $argv[1]
        return 1
    end
    return 0
end

function __fish_headstart_using_subcommand
    set -l cmd (__fish_headstart_needs_command)
    test -z "$cmd"
    and return 1
    contains -- $cmd[1] $argv
end

complete -c headstart -n "__fish_headstart_needs_command" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_needs_command" -s V -l version -d 'Print version'
complete -c headstart -n "__fish_headstart_needs_command" -f -a "run" -d 'Start a program with its files prefetched, and learn from the start'
complete -c headstart -n "__fish_headstart_needs_command" -f -a "record" -d 'Learn which pages a start touches, without prefetching'
complete -c headstart -n "__fish_headstart_needs_command" -f -a "replay" -d 'Prefetch packs or lists of files'
complete -c headstart -n "__fish_headstart_needs_command" -f -a "boot" -d 'Learn the boots of this machine and prefetch what they touch'
complete -c headstart -n "__fish_headstart_needs_command" -f -a "unit" -d 'Prefetch and learn a systemd service at each start'
complete -c headstart -n "__fish_headstart_needs_command" -f -a "daemon" -d 'Learn and prefetch all programs by themselves, with a service'
complete -c headstart -n "__fish_headstart_needs_command" -f -a "list" -d 'List the programs that are learned'
complete -c headstart -n "__fish_headstart_needs_command" -f -a "forget" -d 'Forget what was learned of programs'
complete -c headstart -n "__fish_headstart_needs_command" -f -a "show" -d 'Show what a pack holds'
complete -c headstart -n "__fish_headstart_needs_command" -f -a "pack" -d 'Merge, verify, compare, renew or import packs'
complete -c headstart -n "__fish_headstart_needs_command" -f -a "doctor" -d 'Check kernel, privileges and devices, and print fixes'
complete -c headstart -n "__fish_headstart_needs_command" -f -a "bench" -d 'Measure starts cold, prefetched and hot, and say whether prefetching helps'
complete -c headstart -n "__fish_headstart_needs_command" -f -a "compare" -d 'Compare the counters of two sets of results, benchmarks or recordings of page faults'
complete -c headstart -n "__fish_headstart_needs_command" -f -a "evict" -d 'Drop files from the page cache, and say what stayed and why'
complete -c headstart -n "__fish_headstart_needs_command" -f -a "pages" -d 'Show which pages of files are in the page cache'
complete -c headstart -n "__fish_headstart_needs_command" -f -a "faults" -d 'Record the page faults of a program: how many, where, and how long they take'
complete -c headstart -n "__fish_headstart_needs_command" -f -a "report" -d 'Write a page with what is known of the starts of a program, to be mailed'
complete -c headstart -n "__fish_headstart_needs_command" -f -a "elf" -d 'Tell what programs and libraries cost at the start, and fix it'
complete -c headstart -n "__fish_headstart_needs_command" -f -a "layout" -d 'Move what starts read into one place of the disk, and back'
complete -c headstart -n "__fish_headstart_using_subcommand run" -l forget-after -d 'Forget what this many starts in a row did not touch' -r
complete -c headstart -n "__fish_headstart_using_subcommand run" -l budget -d 'Prefetch at most this much [default and limit: half of the available memory, or three quarters of what the control group leaves, whichever is less]' -r
complete -c headstart -n "__fish_headstart_using_subcommand run" -l max-delay -d 'Start the program at the latest after this time, even if the pages that it needs first have not been requested; setting up the trace may take longer' -r
complete -c headstart -n "__fish_headstart_using_subcommand run" -l threads -d 'Threads that prefetch [default: by the device model]' -r
complete -c headstart -n "__fish_headstart_using_subcommand run" -l pack -d 'Use this pack instead of the program\'s own' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand run" -l name -d 'Name the pack like this, instead of by the program\'s command' -r
complete -c headstart -n "__fish_headstart_using_subcommand run" -l for -d 'Record for this time at most [default: after 10 s until two seconds without I/O, and 5 min at most]' -r
complete -c headstart -n "__fish_headstart_using_subcommand run" -l json -d 'Write all figures to this file as one JSON document' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand run" -l no-learn -d 'Do not learn from this start'
complete -c headstart -n "__fish_headstart_using_subcommand run" -l no-replay -d 'Do not prefetch'
complete -c headstart -n "__fish_headstart_using_subcommand run" -l always -d 'Prefetch and learn even if no benefit is expected here'
complete -c headstart -n "__fish_headstart_using_subcommand run" -l large-folios -d 'When the program has ended, put the densely mapped parts of its big files into large folios, in the background: later hot starts have fewer page faults'
complete -c headstart -n "__fish_headstart_using_subcommand run" -s v -l verbose -d 'Stay as the program\'s parent, and print the run summary at its end, one line; twice: also its details'
complete -c headstart -n "__fish_headstart_using_subcommand run" -l share -d 'Share the pack with other users: a copy without the command and without files that they may not read'
complete -c headstart -n "__fish_headstart_using_subcommand run" -l no-walk -d 'Do not walk file systems to resolve inodes to paths'
complete -c headstart -n "__fish_headstart_using_subcommand run" -l waits -d 'Also record what the program waits for, by cause and file, for the run summary and for `show --last-run`; needs root'
complete -c headstart -n "__fish_headstart_using_subcommand run" -l force -d 'Replace result files, such as that of --json, even if they are not earlier results; a pack replaces only packs'
complete -c headstart -n "__fish_headstart_using_subcommand run" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand record" -l until -d 'What ends the recording (at the latest --for) [default of --for with time: 10s]' -r -f -a "exit\t'When the program has ended'
idle\t'When the program has ended, or has hardly read anything for two seconds'
time\t'After the time of --for, even if the program ends earlier'"
complete -c headstart -n "__fish_headstart_using_subcommand record" -l trace-out -d 'Also keep the raw trace in this file' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand record" -l events -d 'List the accesses of the start in this file (-: standard output): time, process, file, offset, length, and how' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand record" -l events-format -d 'The format of the list [default: csv if its name ends so, or text]' -r -f -a "text\t'Columns for people'
csv\t'CSV'"
complete -c headstart -n "__fish_headstart_using_subcommand record" -l from -d 'List the accesses of this raw trace (--trace-out) instead of recording a start; files have the names that they have now' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand record" -l buffer-kb -d 'Keep the trace buffer of each CPU at this size, even if events are lost: for tests' -r
complete -c headstart -n "__fish_headstart_using_subcommand record" -l pack -d 'Use this pack instead of the program\'s own' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand record" -l name -d 'Name the pack like this, instead of by the program\'s command' -r
complete -c headstart -n "__fish_headstart_using_subcommand record" -l for -d 'Record for this time at most [default: after 10 s until two seconds without I/O, and 5 min at most]' -r
complete -c headstart -n "__fish_headstart_using_subcommand record" -l json -d 'Write all figures to this file as one JSON document' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand record" -l system -d 'Record all processes of the machine, not only the program'
complete -c headstart -n "__fish_headstart_using_subcommand record" -l exact -d 'Record accessed pages without fault-around pages (uses ptrace; slows each system call)'
complete -c headstart -n "__fish_headstart_using_subcommand record" -l group -d 'List consecutive accesses of a thread to the same file as one'
complete -c headstart -n "__fish_headstart_using_subcommand record" -s q -l quiet -d 'Print no summary'
complete -c headstart -n "__fish_headstart_using_subcommand record" -s v -l verbose -d 'Print the details below the run summary'
complete -c headstart -n "__fish_headstart_using_subcommand record" -l share -d 'Share the pack with other users: a copy without the command and without files that they may not read'
complete -c headstart -n "__fish_headstart_using_subcommand record" -l no-walk -d 'Do not walk file systems to resolve inodes to paths'
complete -c headstart -n "__fish_headstart_using_subcommand record" -l waits -d 'Also record what the program waits for, by cause and file, for the run summary and for `show --last-run`; needs root'
complete -c headstart -n "__fish_headstart_using_subcommand record" -l force -d 'Replace result files, such as that of --json, even if they are not earlier results; a pack replaces only packs'
complete -c headstart -n "__fish_headstart_using_subcommand record" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c headstart -n "__fish_headstart_using_subcommand replay" -l nice -d 'Set the nice value, -20 to 19' -r
complete -c headstart -n "__fish_headstart_using_subcommand replay" -l ioprio -d 'Set the I/O priority: idle, best-effort[:0-7], realtime[:0-7]' -r
complete -c headstart -n "__fish_headstart_using_subcommand replay" -l budget -d 'Prefetch at most this much [default and limit: half of the available memory, or three quarters of what the control group leaves, whichever is less]' -r
complete -c headstart -n "__fish_headstart_using_subcommand replay" -l timeout -d 'Stop after this time' -r
complete -c headstart -n "__fish_headstart_using_subcommand replay" -l threads -d 'Threads that prefetch [default: by the device model]' -r
complete -c headstart -n "__fish_headstart_using_subcommand replay" -l wait -d 'Wait until the pages are resident'
complete -c headstart -n "__fish_headstart_using_subcommand replay" -l background -d 'Return immediately and continue in the background'
complete -c headstart -n "__fish_headstart_using_subcommand replay" -l large-folios -d 'First put the densely mapped parts of big files into large folios: drops resident pages and reads them again, so use it when no program waits'
complete -c headstart -n "__fish_headstart_using_subcommand replay" -l dry-run -d 'Print the plan and read nothing'
complete -c headstart -n "__fish_headstart_using_subcommand replay" -l diskstats -d 'Print what the disks read meanwhile (implies --wait)'
complete -c headstart -n "__fish_headstart_using_subcommand replay" -l verify -d 'Print how much of the plan is resident afterwards (implies --wait)'
complete -c headstart -n "__fish_headstart_using_subcommand replay" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand replay" -s q -l quiet -d 'Print no summary'
complete -c headstart -n "__fish_headstart_using_subcommand replay" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and not __fish_seen_subcommand_from enable disable status analyze bench record replay" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and not __fish_seen_subcommand_from enable disable status analyze bench record replay" -f -a "enable" -d 'Learn and prefetch each boot from now on'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and not __fish_seen_subcommand_from enable disable status analyze bench record replay" -f -a "disable" -d 'Undo what enable did'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and not __fish_seen_subcommand_from enable disable status analyze bench record replay" -f -a "status" -d 'Show what was learned, the last boots, and what prefetching gained'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and not __fish_seen_subcommand_from enable disable status analyze bench record replay" -f -a "analyze" -d 'Draw a recorded boot: phases, units, what was read when, and idle times'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and not __fish_seen_subcommand_from enable disable status analyze bench record replay" -f -a "bench" -d 'Measure how long boots take, by a command that boots a machine or from the history'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and not __fish_seen_subcommand_from enable disable status analyze bench record replay" -f -a "record" -d 'Record and learn this boot; run by a unit'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and not __fish_seen_subcommand_from enable disable status analyze bench record replay" -f -a "replay" -d 'Prefetch the packs of boots; run by a unit'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from enable" -l root -d 'Enable it in the image below this directory' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from enable" -l kernel-cmdline -d 'Let the kernel record from its first page on, by words on its command line'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from enable" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from disable" -l root -d 'Disable it in the image below this directory' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from disable" -l purge -d 'Also remove what was learned of boots'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from disable" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from status" -l root -d 'Use the image below this directory' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from status" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from status" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from analyze" -l picture -d 'Write a picture to this file: a page with tables (.html), an image (.svg) or data (.json)' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from analyze" -l root -d 'Use the image below this directory' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from analyze" -l force -d 'Replace that file even if it is not an earlier result'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from analyze" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from analyze" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from bench" -l runs -d 'Rounds to measure' -r
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from bench" -l arm -d 'A command to compare with, for a shell' -r
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from bench" -l timeout -d 'How long a boot may take' -r
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from bench" -l min-difference -d 'Ignore differences below this' -r
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from bench" -l seed -d 'Repeat the order of an earlier benchmark' -r
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from bench" -l root -d 'Use the history of the image below this directory' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from bench" -l bootperf -d 'Write the figures to a file in the shape of ChromeOS\'s boot performance tests' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from bench" -l history -d 'Use this machine\'s recorded boots instead'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from bench" -l force -d 'Replace that file even if it is not an earlier result'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from bench" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from bench" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from record" -l timeout -d 'End after this time at the latest' -r
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from record" -l instance -d 'Continue with this trace instance, if it exists' -r
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from record" -l root -d 'Keep packs, history and state below this directory, for tests' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from record" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from replay" -l phase -d 'Prefetch only these phases [default: all]' -r
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from replay" -l root -d 'Prefetch for the machine whose root directory is mounted here' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from replay" -l timeout -d 'End after this time at the latest' -r
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from replay" -l wait -d 'Wait until the pages are resident, in the foreground'
complete -c headstart -n "__fish_headstart_using_subcommand boot; and __fish_seen_subcommand_from replay" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand unit" -l root -d 'Write to the image below this directory' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand unit" -l for -d 'Record for this time after the service began' -r
complete -c headstart -n "__fish_headstart_using_subcommand unit" -l remove -d 'Undo it; what was learned stays'
complete -c headstart -n "__fish_headstart_using_subcommand unit" -l list -d 'List the services that are learned and prefetched'
complete -c headstart -n "__fish_headstart_using_subcommand unit" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand unit" -l follow -d 'Prefetch the service\'s pack and learn its start, now; run by a unit'
complete -c headstart -n "__fish_headstart_using_subcommand unit" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and not __fish_seen_subcommand_from run status top metrics forget pin unpin pause resume off" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and not __fish_seen_subcommand_from run status top metrics forget pin unpin pause resume off" -f -a "run" -d 'Run the service; systemd does that, by headstartd.service'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and not __fish_seen_subcommand_from run status top metrics forget pin unpin pause resume off" -f -a "status" -d 'Show what the service does, and what it gained and cost'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and not __fish_seen_subcommand_from run status top metrics forget pin unpin pause resume off" -f -a "top" -d 'List the last starts, and the programs that gain most'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and not __fish_seen_subcommand_from run status top metrics forget pin unpin pause resume off" -f -a "metrics" -d 'Print the figures in the text format of Prometheus'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and not __fish_seen_subcommand_from run status top metrics forget pin unpin pause resume off" -f -a "forget" -d 'Forget what was learned of a program'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and not __fish_seen_subcommand_from run status top metrics forget pin unpin pause resume off" -f -a "pin" -d 'Prefetch a program at each start and keep its pack, whatever the figures say'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and not __fish_seen_subcommand_from run status top metrics forget pin unpin pause resume off" -f -a "unpin" -d 'Leave a pinned program to the figures again'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and not __fish_seen_subcommand_from run status top metrics forget pin unpin pause resume off" -f -a "pause" -d 'Neither prefetch nor learn until `resume`; root only'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and not __fish_seen_subcommand_from run status top metrics forget pin unpin pause resume off" -f -a "resume" -d 'Go on after `pause`; root only'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and not __fish_seen_subcommand_from run status top metrics forget pin unpin pause resume off" -f -a "off" -d 'End tracing and the service, until it is started again; root only'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from run" -l config -d 'The configuration; see headstartd.conf(5)' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from run" -l state -d 'Where the state and the packs of users are kept' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from run" -l socket -d 'Where to listen' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from run" -l sessions -d 'Where logind keeps its sessions, which tell of logins' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from run" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from status" -l socket -d 'The socket of the service' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from status" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from status" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from top" -l socket -d 'The socket of the service' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from top" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from top" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from metrics" -l socket -d 'The socket of the service' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from metrics" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from forget" -l socket -d 'The socket of the service' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from forget" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from forget" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from pin" -l socket -d 'The socket of the service' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from pin" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from pin" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from unpin" -l socket -d 'The socket of the service' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from unpin" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from unpin" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from pause" -l for -d 'Go on by itself after this time, such as 10m' -r
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from pause" -l socket -d 'The socket of the service' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from pause" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from pause" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from resume" -l socket -d 'The socket of the service' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from resume" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from resume" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from off" -l socket -d 'The socket of the service' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from off" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand daemon; and __fish_seen_subcommand_from off" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand list" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand list" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand forget" -l unused-for -d 'All of your packs that were neither learned nor read for this time, such as 30d' -r
complete -c headstart -n "__fish_headstart_using_subcommand forget" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand show" -l picture -d 'Write that as a picture to this file: a page (.html), an image (.svg) or data (.json)' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand show" -l dump -d 'Draw a map of each file: @ begins a range, # continues it, . is not in the pack'
complete -c headstart -n "__fish_headstart_using_subcommand show" -l list -d 'Print a list that `headstart replay` reads'
complete -c headstart -n "__fish_headstart_using_subcommand show" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand show" -l last-run -d 'Draw the classification of the last learned start\'s pages: late, missing, wasted'
complete -c headstart -n "__fish_headstart_using_subcommand show" -l force -d 'Replace that file even if it is not an earlier result'
complete -c headstart -n "__fish_headstart_using_subcommand show" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand pack; and not __fish_seen_subcommand_from merge verify renew import diff" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand pack; and not __fish_seen_subcommand_from merge verify renew import diff" -f -a "merge" -d 'Merge packs into one with the ranges of all of them'
complete -c headstart -n "__fish_headstart_using_subcommand pack; and not __fish_seen_subcommand_from merge verify renew import diff" -f -a "verify" -d 'Check a pack, and whether its files have changed since; exit status 3 when some have'
complete -c headstart -n "__fish_headstart_using_subcommand pack; and not __fish_seen_subcommand_from merge verify renew import diff" -f -a "renew" -d 'After an upgrade: let packs prefetch the files that replaced learned ones'
complete -c headstart -n "__fish_headstart_using_subcommand pack; and not __fish_seen_subcommand_from merge verify renew import diff" -f -a "import" -d 'Make a pack of what other tools recorded: strace, trace-cmd, perf, lists, other packs'
complete -c headstart -n "__fish_headstart_using_subcommand pack; and not __fish_seen_subcommand_from merge verify renew import diff" -f -a "diff" -d 'Compare two packs by files and pages; exit status 3 when they differ'
complete -c headstart -n "__fish_headstart_using_subcommand pack; and __fish_seen_subcommand_from merge" -s o -l output -d 'Where to write the result' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand pack; and __fish_seen_subcommand_from merge" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand pack; and __fish_seen_subcommand_from verify" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand pack; and __fish_seen_subcommand_from verify" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand pack; and __fish_seen_subcommand_from renew" -l timeout -d 'Check files for this time at most' -r
complete -c headstart -n "__fish_headstart_using_subcommand pack; and __fish_seen_subcommand_from renew" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand pack; and __fish_seen_subcommand_from renew" -s q -l quiet -d 'Print nothing but errors'
complete -c headstart -n "__fish_headstart_using_subcommand pack; and __fish_seen_subcommand_from renew" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand pack; and __fish_seen_subcommand_from import" -s o -l output -d 'Where to write the pack' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand pack; and __fish_seen_subcommand_from import" -l format -d 'The format of the files [default: by their content]' -r -f -a "strace\t''
trace-cmd\t''
perf\t''
fatrace\t''
list\t''
ureadahead\t''
android-prefetch\t''
iorap\t''"
complete -c headstart -n "__fish_headstart_using_subcommand pack; and __fish_seen_subcommand_from import" -l root -d 'Look files up below this directory, as in the root of a container or a mounted image' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand pack; and __fish_seen_subcommand_from import" -s v -l verbose -d 'Print the names of all files that are missing'
complete -c headstart -n "__fish_headstart_using_subcommand pack; and __fish_seen_subcommand_from import" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand pack; and __fish_seen_subcommand_from diff" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand pack; and __fish_seen_subcommand_from diff" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand doctor" -l reprobe -d 'Probe all devices again: random and sequential reads for up to 0.6 s each'
complete -c headstart -n "__fish_headstart_using_subcommand doctor" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand doctor" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l runs -d 'Rounds to measure, or at least to measure with --until-ci' -r
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l until-ci -d 'Continue until the 95 % interval of every median is this narrow (± half of its width, as a share of the median), such as 3%' -r
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l max-runs -d 'Rounds to measure at most with --until-ci' -r
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l time-limit -d 'Begin no round after this time, learning included' -r
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l warmup -d 'Rounds beforehand that are not measured' -r
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l states -d 'What to measure: cold, selective, prefetched, hot [default: all; without selective where --cold-cmd is given, without cold where not permitted]' -r
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l pack -d 'Prefetch this pack; if it does not exist, it is learned and kept there' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l against -d 'Compare with another command: NAME=CMD runs before the cold program, NAME&=CMD in parallel with it, NAME:=CMD instead of it, cold and hot' -r
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l ready -d 'A start ends when this holds, and the program is killed: line:TEXT, port:NUMBER, file:PATH, dbus:NAME, notify [default: when the program ends]' -r
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l timeout -d 'How long a start may take' -r
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l cold-cmd -d 'Prepare cold starts with this command, such as `umount /x && mount /x`, instead of dropping all caches' -r
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l prepare -d 'Run this before each start, and before the caches are dropped' -r
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l min-difference -d 'Ignore differences below this' -r
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l export-json -d 'Write that document to a file' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l export-markdown -d 'Write the report to a file, as Markdown' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l picture -d 'Write a picture of the runs to this file: a page (.html), an image (.svg) or data (.json)' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l assert -d 'Exit with status 3 unless this holds' -r -f -a "helps\t'Prefetching makes the start faster'
harmless\t'Prefetching does not make the start slower'"
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l no-floor -d 'Do not search for the fastest read strategy'
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l waits -d 'After the measured starts, record what some of each state wait for, by cause; needs root'
complete -c headstart -n "__fish_headstart_using_subcommand bench" -s i -l ignore-failure -d 'Accept any exit status of the program'
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l show-output -d 'Show what the programs print, on standard error'
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l json -d 'Print one JSON document, which hyperfine\'s scripts read, too'
complete -c headstart -n "__fish_headstart_using_subcommand bench" -l force -d 'Replace these files even if they are not earlier results'
complete -c headstart -n "__fish_headstart_using_subcommand bench" -s h -l help -d 'Print help (see more with \'--help\')'
complete -c headstart -n "__fish_headstart_using_subcommand compare" -l with -d 'Those of the second side' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand compare" -l top -d 'List this many counters, and all with 0; 50 if not given, and 1,000 with --json' -r
complete -c headstart -n "__fish_headstart_using_subcommand compare" -l picture -d 'Draw a recording of each side on the same axes to this file: a page to look around in (.html), an image (.svg) or data (.json)' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand compare" -l force -d 'Replace the file even if it is no earlier picture'
complete -c headstart -n "__fish_headstart_using_subcommand compare" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand compare" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand evict" -l metadata -d 'Also drop the file system\'s metadata: writes the file systems of the files to their devices, drops ALL unused names and inodes of this machine (drop_caches=2), and the block devices\' pages. Needs root'
complete -c headstart -n "__fish_headstart_using_subcommand evict" -l sync -d 'Write dirty pages first, so that they can be dropped'
complete -c headstart -n "__fish_headstart_using_subcommand evict" -l dry-run -d 'Only report how many pages would be dropped'
complete -c headstart -n "__fish_headstart_using_subcommand evict" -l strict -d 'End with status 3 if pages of the files stayed'
complete -c headstart -n "__fish_headstart_using_subcommand evict" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand evict" -s q -l quiet -d 'Print nothing but errors'
complete -c headstart -n "__fish_headstart_using_subcommand evict" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand pages" -l list -d 'Print `name offset:length,offset:length` in bytes for each file with cached pages: a list for `replay`, with absolute names. In names, invisible characters, and a space at either end, are written as \\ and three octal digits, as in \\012'
complete -c headstart -n "__fish_headstart_using_subcommand pages" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand pages" -l bytes -d 'Print sizes as numbers of bytes'
complete -c headstart -n "__fish_headstart_using_subcommand pages" -l total -d 'Add a line with the sum of all files'
complete -c headstart -n "__fish_headstart_using_subcommand pages" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand faults" -l pid -d 'Record a running process, all its threads, and what they start, until it ends or a signal (Ctrl-C) or --for ends the recording' -r
complete -c headstart -n "__fish_headstart_using_subcommand faults" -l for -d 'Record for this time at most; the program goes on' -r
complete -c headstart -n "__fish_headstart_using_subcommand faults" -l json -d 'Write all figures to this file as one JSON document (-: standard output)' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand faults" -l csv -d 'Write each fault to this file as a row of CSV (-: standard output)' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand faults" -l firefox -d 'Write the faults to this file as a profile for the Firefox Profiler, with a marker for each' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand faults" -l perfetto -d 'Write the faults to this file as a trace for Perfetto, with a slice for each' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand faults" -l folded -d 'Write the time of faults to this file as folded stacks of process, thread, file, segment and section, for flame graphs (-: standard output)' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand faults" -l picture -d 'Write a picture to this file: a page to look around in (.html), an image (.svg) or data (.json); with --waits also of system calls and block devices; may be given several times' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand faults" -l before -d 'Say whether the advice in this earlier document (--json) came true' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand faults" -l huge -d 'Also record which faults map a huge page; it takes a little longer'
complete -c headstart -n "__fish_headstart_using_subcommand faults" -l waits -d 'Also record what threads waited for, by kind and file, and the requests of disks; needs root'
complete -c headstart -n "__fish_headstart_using_subcommand faults" -l force -d 'Replace files of results even if they are not earlier results'
complete -c headstart -n "__fish_headstart_using_subcommand faults" -s v -l verbose -d 'Print all rows of the tables, and all advice'
complete -c headstart -n "__fish_headstart_using_subcommand faults" -s q -l quiet -d 'Print no tables'
complete -c headstart -n "__fish_headstart_using_subcommand faults" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand report" -s o -l output -d 'The page to write' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand report" -l bench -d 'Results of a benchmark' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand report" -l faults -d 'Recorded page faults' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand report" -l picture -d 'A picture, as data (.json): of page faults, a benchmark, a boot, a last start, or two recordings' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand report" -l waits -d 'With CMD: also record what threads waited for, and the requests of disks; needs root'
complete -c headstart -n "__fish_headstart_using_subcommand report" -l force -d 'Replace the file even if it is no earlier report'
complete -c headstart -n "__fish_headstart_using_subcommand report" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and not __fish_seen_subcommand_from report repack undo order" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and not __fish_seen_subcommand_from report repack undo order" -f -a "report" -d 'Tell what relocations, initializers and layout cost, and how to fix it'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and not __fish_seen_subcommand_from report repack undo order" -f -a "repack" -d 'Pack the relocations of finished programs and libraries, so that starts read less'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and not __fish_seen_subcommand_from report repack undo order" -f -a "undo" -d 'Make repacked files what they were'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and not __fish_seen_subcommand_from report repack undo order" -f -a "order" -d 'Tell which functions a start calls in which order, and write that for linkers'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from report" -l top -d 'Show this many files of a table, and all with 0' -r
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from report" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from report" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from repack" -s o -l output -d 'Write the result to this file' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from repack" -l minimum -d 'Skip files of which less would be saved' -r
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from repack" -l check -d 'A shell command that must print and return the same with the old and with the new file, whose path replaces {}' -r
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from repack" -l root -d 'The root directory of the system that the files belong to, such as of an image' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from repack" -l in-place -d 'Replace the files'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from repack" -l system -d 'All of /usr and /opt'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from repack" -l renew -d 'Files that were repacked, and that an upgrade replaced since'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from repack" -l packaged -d 'Change files of packages too'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from repack" -l divert -d 'Divert files of Debian packages with dpkg-divert(1), and put repacked ones in their place'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from repack" -l any-loader -d 'Don\'t ask whether the loader of the system knows DT_RELR'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from repack" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from repack" -s q -l quiet -d 'Print nothing but errors'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from repack" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from undo" -l root -d 'The root directory of the system that the files belong to, such as of an image' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from undo" -l all -d 'All files that were repacked'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from undo" -l diverted -d 'All files that were diverted (repack --divert), such as before headstart is removed'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from undo" -s q -l quiet -d 'Print nothing but errors'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from undo" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from order" -l runs -d 'Run the program so many times' -r
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from order" -l from -d 'Add the runs of such a document (--json) [without CMD: only those]' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from order" -l for -d 'Look at the first calls of this time only' -r
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from order" -l at-least -d 'Drop functions that a smaller share of the runs called' -r
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from order" -l of -d 'Which file the order files are for: its path or name [default: the program itself]' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from order" -l lld -d 'Write the order for lld to this file (--symbol-ordering-file)' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from order" -l gold -d 'Write the order for gold to this file (--section-ordering-file)' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from order" -l gnu-ld -d 'Write the order for GNU ld 2.43 and later to this file (--section-ordering-file)' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from order" -l bolt -d 'Write the order for BOLT to this file (-function-order)' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from order" -l json -d 'Write all first calls to this file as one JSON document' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from order" -l libraries -d 'Look at shared libraries too; takes a moment at each system call'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from order" -l force -d 'Replace these files even if they are not earlier results; those for gold and BOLT have no mark of an earlier result'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from order" -s q -l quiet -d 'Print no table'
complete -c headstart -n "__fish_headstart_using_subcommand elf; and __fish_seen_subcommand_from order" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and not __fish_seen_subcommand_from plan apply resume status verify undo release list" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and not __fish_seen_subcommand_from plan apply resume status verify undo release list" -f -a "plan" -d 'Tell what a layout would gain, and move nothing; exit status 3 when that is nothing'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and not __fish_seen_subcommand_from plan apply resume status verify undo release list" -f -a "apply" -d 'Move what these packs read into one place, in touch order'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and not __fish_seen_subcommand_from plan apply resume status verify undo release list" -f -a "resume" -d 'Go on with a layout that was stopped'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and not __fish_seen_subcommand_from plan apply resume status verify undo release list" -f -a "status" -d 'Tell where the files of layouts are'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and not __fish_seen_subcommand_from plan apply resume status verify undo release list" -f -a "verify" -d 'Read the files of layouts from the disk, and compare them with what they held'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and not __fish_seen_subcommand_from plan apply resume status verify undo release list" -f -a "undo" -d 'Move files back to the very blocks where they were'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and not __fish_seen_subcommand_from plan apply resume status verify undo release list" -f -a "release" -d 'Keep a layout for good, and free the blocks where its files were'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and not __fish_seen_subcommand_from plan apply resume status verify undo release list" -f -a "list" -d 'Write the order of files for the builder of an image (squashfs, EROFS)'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from plan" -l budget -d 'Move at most so much (512M, 2G); it is taken twice until the layout is undone or released' -r
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from plan" -l gaps -d 'Also move gaps of up to so much (1M) between what is read, for programs that are started without headstart, too; a replay then takes longer' -r
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from plan" -l on -d 'Only files on the file system of this path; apply needs it if packs name files on several' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from plan" -l compress -d 'Compress what is moved, on btrfs (zstd, zstd:9); where the bandwidth of a disk is the limit, a start then reads less' -r
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from plan" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from plan" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from apply" -l budget -d 'Move at most so much (512M, 2G); it is taken twice until the layout is undone or released' -r
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from apply" -l gaps -d 'Also move gaps of up to so much (1M) between what is read, for programs that are started without headstart, too; a replay then takes longer' -r
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from apply" -l on -d 'Only files on the file system of this path; apply needs it if packs name files on several' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from apply" -l compress -d 'Compress what is moved, on btrfs (zstd, zstd:9); where the bandwidth of a disk is the limit, a start then reads less' -r
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from apply" -l idle -d 'Work only while nobody else used the disk for so long (500ms, 5s)' -r
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from apply" -l for -d 'Stop after so long (10m, 1h); resume goes on' -r
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from apply" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from apply" -l force -d 'Move even if nothing is gained by the device model'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from apply" -l make-room -d 'Where free space is in pieces, move other files aside first. On ext4 the layout then takes up to half more until release, or undo, which moves them back unless their old blocks are in use by then. On xfs undo does not move them back. On btrfs block groups are moved, one or up to 8 times the bytes of the layout, and undo does not move them back either'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from apply" -l trust-kernel -d 'Move though this kernel may lack the fix of CVE-2024-26704, by its number'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from apply" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from resume" -l idle -d 'Work only while nobody else used the disk for so long (500ms, 5s)' -r
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from resume" -l for -d 'Stop after so long (10m, 1h); resume goes on' -r
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from resume" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from resume" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from status" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from status" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from verify" -l idle -d 'Work only while nobody else used the disk for so long (500ms, 5s)' -r
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from verify" -l for -d 'Stop after so long (10m, 1h); resume goes on' -r
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from verify" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from verify" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from undo" -l idle -d 'Work only while nobody else used the disk for so long (500ms, 5s)' -r
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from undo" -l for -d 'Stop after so long (10m, 1h); resume goes on' -r
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from undo" -l json -d 'Print one JSON document'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from undo" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from release" -s h -l help -d 'Print help'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from list" -l format -d 'How the list is written' -r -f -a "squashfs-sort\t'A path and a priority a line, for mksquashfs'
paths\t'A path a line, for tar and cpio'"
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from list" -s o -l output -d 'Write it to FILE' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from list" -l root -d 'Where the root of the image was when the packs were learned' -r -F
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from list" -l force -d 'Replace FILE even if it is another file'
complete -c headstart -n "__fish_headstart_using_subcommand layout; and __fish_seen_subcommand_from list" -s h -l help -d 'Print help (see more with \'--help\')'
